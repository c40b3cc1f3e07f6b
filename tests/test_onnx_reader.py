# SPDX-License-Identifier: Apache-2.0
"""ONNX as exporters write it today: ONNX's own tests, what is refused and how, functions, values of inputs."""

import re
import sys

import numpy as np
import onnx
import pytest
from collage import export, frontends
from conftest import TREE
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(TREE / "scripts"))
import conformance

# One or two of each family that TVM's importer reads wrong, or not at all.
FEW = (
    "reduce_mean_negative_axes_keepdims_example", "reduce_log_sum_exp_do_not_keepdims_random",
    "reduce_max_bool_inputs", "reduce_sum_empty_axes_input_noop", "reduce_prod_empty_set", "gelu_tanh_1",
    "gelu_default_1", "mod_mixed_sign_int32", "cast_DOUBLE_to_FLOAT16", "castlike_FLOAT_to_DOUBLE",
    "dropout_default_mask", "prelu_broadcast", "resize_upsample_scales_cubic",
    "resize_downsample_sizes_linear_antialias", "resize_tf_crop_and_resize",
    "resize_upsample_sizes_nearest_not_smaller", "resize_downsample_scales_linear_half_pixel_symmetric",
    "averagepool_2d_ceil", "averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True",
    "maxpool_2d_ceil_output_size_reduce_by_one", "maxpool_with_argmax_2d_precomputed_pads", "lppool_2d_same_upper",
    "layer_normalization_4d_axis1", "rms_normalization_3d_axis1_epsilon", "group_normalization_epsilon",
    "batchnorm_epsilon_training_mode", "split_zero_size_splits_opset18", "split_1d_uneven_split_opset18",
    "scatternd_add", "scatter_elements_with_negative_indices", "tril_neg", "wrap_pad", "constant_pad_negative_axes",
    "shape_end_negative_1", "onehot_negative_indices", "range_float_type_positive_delta", "gridsample_bilinear",
    "dft_axis", "lstm_batchwise", "attention_4d_gqa_causal", "rotary_embedding_interleaved",
    "center_crop_pad_crop_axes_chw", "qlinearmatmul_2D_uint8_float16", "col2im_5d", "convtranspose_dilations",
    "gridsample_volumetric_nearest_align_corners_1", "onehot_with_negative_axis",
)  # fmt: skip


@pytest.mark.parametrize("name", FEW)
def test_it_is_right(name):
    (test,) = conformance.tests(["node"], f"^test_{name}$")
    assert conformance.judged(test, "tvm")[2:] == ("pass", "")


# What ONNX's own data has that no engine can give: random numbers, and products that ran over (the standard has them
# saturate; ONNX Runtime differs by the same).
NOT_TO_BE_HAD = re.compile(r"^test_(bernoulli|qlinearmatmul_[23]D_int8)")


@pytest.mark.long
def test_conformance():
    """All of ONNX's tests: as many right as there were, nothing wrong, and a line for what is refused."""
    verdicts = conformance.all_of(conformance.tests(conformance.KINDS, ""), "tvm", 2)
    passed = [test for test, (what, _) in verdicts.items() if what == "pass"]
    assert len([kind for kind, _ in passed if kind == "node"]) >= 1239
    assert len([kind for kind, _ in passed if kind.startswith("pytorch")]) == 117
    assert not [test for test, (what, _) in verdicts.items() if what == "crashed"]
    wrong = [name for (_, name), (what, _) in verdicts.items() if what == "wrong"]
    assert not [name for name in wrong if not NOT_TO_BE_HAD.search(name)]
    assert all(why and "\n" not in why for what, why in verdicts.values() if what == "refused")


def model(nodes, inputs, outputs, weights=(), opset=20, functions=(), **imports):
    """A model of a few nodes; inputs and outputs are {name: (type, shape)}, weights {name: array}."""
    values = [
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in side.items()]
        for side in (inputs, outputs)
    ]
    initialisers = [numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    graph = helper.make_graph(nodes, "test", *values, initialisers)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(*one) for one in imports.items())]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)


def outputs(path, values, **options):
    """What plain TVM gives for a model that was read, for {input: array}."""
    import tvm

    read = frontends.load(path, **options)
    built = export.build(read.module, "llvm -opt-level=0", 2)
    executor = tvm.contrib.graph_executor.GraphModule(built["default"](tvm.cpu()))
    for name, value in values.items():
        executor.set_input(name, value)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def by_reference(path, values):
    return onnx.reference.ReferenceEvaluator(str(path)).run(None, values)


def close(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_axes_that_are_an_input(tmp_path):
    """As torch.onnx.export writes a mean over rows and columns since opset 18."""
    made = model(
        [helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)],
        {"x": (TensorProto.FLOAT, [2, 3, 4, 5])}, {"y": (TensorProto.FLOAT, [2, 3])}, {"axes": np.array([2, 3])},
    )  # fmt: skip
    onnx.save(made, tmp_path / "mean.onnx")
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype("float32")
    close(outputs(tmp_path / "mean.onnx", {"x": x}), [x.mean((2, 3))])


def test_functions_of_the_model(tmp_path):
    """Functions that a model brings with it, with weights that are set aside meanwhile, also within one another."""
    inner = helper.make_function(
        "own", "Scaled", ["x", "w"], ["y"],
        [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
        [helper.make_opsetid("", 20)],
    )  # fmt: skip
    outer = helper.make_function(
        "own", "Twice", ["x", "w"], ["y"],
        [
            helper.make_node("Scaled", ["x", "w"], ["a"], domain="own"),
            helper.make_node("Scaled", ["a", "w"], ["b"], domain="own"),
            helper.make_node("MeanVarianceNormalization", ["b"], ["y"], axes=[0, 1]),
        ],
        [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)],
    )  # fmt: skip
    weight = np.random.default_rng(1).standard_normal((40, 50)).astype("float32")
    made = model(
        [helper.make_node("Twice", ["x", "w"], ["y"], domain="own")],
        {"x": (TensorProto.FLOAT, [40, 50])}, {"y": (TensorProto.FLOAT, [40, 50])}, {"w": weight},
        functions=[inner, outer], own=1,
    )  # fmt: skip
    onnx.save(made, tmp_path / "functions.onnx")
    x = np.random.default_rng(2).standard_normal((40, 50)).astype("float32")
    close(outputs(tmp_path / "functions.onnx", {"x": x}), by_reference(tmp_path / "functions.onnx", {"x": x}))


@pytest.fixture
def tiled(tmp_path):
    """A network whose result is as large as an input says."""
    made = model(
        [helper.make_node("Expand", ["x", "shape"], ["e"]), helper.make_node("Mul", ["e", "factor"], ["y"])],
        {"x": (TensorProto.FLOAT, [1, 3]), "shape": (TensorProto.INT64, [2]), "factor": (TensorProto.FLOAT, [])},
        {"y": (TensorProto.FLOAT, ["a", "b"])},
    )
    onnx.save(made, tmp_path / "tiled.onnx")
    return tmp_path / "tiled.onnx"


def test_values_of_inputs(tiled):
    with pytest.raises(ValueError, match=r"known only when it runs.*--input-value"):
        frontends.load(tiled)
    x = np.array([[1, 2, 3]], "float32")
    values = {"shape": [4, 3], "factor": [2.0]}
    assert list(frontends.load(tiled, input_values=values).inputs) == ["x"]
    close(outputs(tiled, {"x": x}, input_values=values), [np.repeat(2 * x, 4, axis=0)])
    # One number is the scalar that is declared: a scalar it stays.
    scaled = frontends.load(tiled, input_values={"shape": [4, 3], "factor": [2.0]}).module["main"]
    assert tuple(scaled.body.args[1].checked_type.shape) == ()
    with pytest.raises(ValueError, match=r"no input 'shap'; its inputs are: x, shape, factor"):
        frontends.load(tiled, input_values={"shap": [4, 3]})
    with pytest.raises(ValueError, match=r"input shape of .* is \[2\]; a value of \[3\] does not fit"):
        frontends.load(tiled, input_values={"shape": [4, 3, 1]})
    with pytest.raises(ValueError, match="workload:dcgan is no ONNX model"):
        frontends.load("workload:dcgan", input_values={"shape": [4, 3]})


def test_a_mask_of_old(tmp_path):
    """Dropout gave a mask before opset 7, too."""
    made = model(
        [helper.make_node("Dropout", ["x"], ["d", "mask"], is_test=1), helper.make_node("Relu", ["d"], ["y"])],
        {"x": (TensorProto.FLOAT, [2, 3])}, {"y": (TensorProto.FLOAT, [2, 3])}, opset=6,
    )  # fmt: skip
    onnx.save(made, tmp_path / "old.onnx")
    x = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    close(outputs(tmp_path / "old.onnx", {"x": x}), [np.maximum(x, 0)])


def test_values_of_inputs_on_the_command_line(command, tiled, tmp_path):
    arguments = (
        "compile",
        tiled,
        "-o",
        tmp_path / "tiled.tar",
        "--backends",
        "tvm",
        "-q",
        "--input-value",
        "shape:4,3",
    )
    result = command(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    refused = command(*arguments, "--input-value", "factor:two")
    assert refused.returncode == 2
    assert 'collage: error: --input-value factor:two: "two" is not a number' in refused.stderr


REFUSED = {
    "its input x is of the type bfloat16, which TVM does not have": (
        [helper.make_node("Relu", ["x"], ["y"])],
        {"x": (TensorProto.BFLOAT16, [2])}, {"y": (TensorProto.BFLOAT16, [2])},
    ),
    "what the operator Cast that makes c gives is of the type float8e5m2, which TVM does not have": (
        [
            helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT8E5M2),
            helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
        ],
        {"x": (TensorProto.FLOAT, [2])}, {"y": (TensorProto.FLOAT, [2])},
    ),
    "the operator ReduceSum that makes ReduceSum_0: the axes of ReduceSum is computed by the network, or an input": (
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"])],
        {"x": (TensorProto.FLOAT, [2, 3]), "axes": (TensorProto.INT64, [1])}, {"y": (TensorProto.FLOAT, [2, 1])},
    ),
    "operators that TVM's ONNX importer lacks: Det": (
        [helper.make_node("Det", ["x"], ["y"])],
        {"x": (TensorProto.FLOAT, [2, 2])}, {"y": (TensorProto.FLOAT, [])},
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused(tmp_path, why):
    onnx.save(model(*REFUSED[why]), tmp_path / "refused.onnx")
    with pytest.raises(ValueError, match=re.escape(why)) as error:
        frontends.load(tmp_path / "refused.onnx")
    assert str(tmp_path / "refused.onnx") in str(error.value)
    assert "\n" not in str(error.value)


def test_branches_are_refused(tmp_path):
    result = [helper.make_tensor_value_info("r", TensorProto.FLOAT, [2])]
    nodes = {name: helper.make_node(name, ["x"], ["r"]) for name in ("Relu", "Abs")}
    branches = [helper.make_graph([node], name, [], result) for name, node in nodes.items()]
    made = model(
        [helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])],
        {"c": (TensorProto.BOOL, []), "x": (TensorProto.FLOAT, [2])}, {"y": (TensorProto.FLOAT, [2])},
    )  # fmt: skip
    onnx.save(made, tmp_path / "branches.onnx")
    with pytest.raises(ValueError, match="it has branches or loops, which are not supported"):
        frontends.load(tmp_path / "branches.onnx")


def test_an_unrolled_network_has_its_weights_once(tmp_path):
    """TVM's importer writes an LSTM out step by step, each with weights that it puts together anew."""
    rng = np.random.default_rng(4)
    hidden, steps = 24, 12
    shapes = {"w": (1, 4 * hidden, hidden), "r": (1, 4 * hidden, hidden), "b": (1, 8 * hidden)}
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype("float32"), n) for n, s in shapes.items()]
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=hidden)],
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, 1, hidden])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    path = tmp_path / "lstm.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), str(path))
    model = frontends.load(path)
    assert model.info()["operator_counts"]["nn.dense"] >= steps
    assert frontends.parameter_bytes(model.module) < 1.5 * sum(len(one.raw_data) for one in weights)
