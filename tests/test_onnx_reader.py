# SPDX-License-Identifier: Apache-2.0
"""ONNX as exporters write it today: ONNX's own tests, what is refused and how, functions, values of inputs."""

import os
import re
import sys
import time

import numpy as np
import onnx
import placed
import pytest
from collage import export, frontends
from conftest import TREE
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(TREE / "scripts"))
import apart_runs
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
    "gridsample_volumetric_nearest_align_corners_1", "onehot_with_negative_axis", "affine_grid_2d",
    "affine_grid_3d_align_corners", "deform_conv_with_mask_bias", "deform_conv_with_multiple_offset_groups",
    "stft_with_window", "melweightmatrix", "top_k_smallest", "top_k_uint64", "det_nd", "roialign_aligned_true",
    "roialign_mode_max", "einsum_batch_matmul", "einsum_inner_prod",
    "quantizelinear_blocked_asymmetric", "quantizelinear_blocked_symmetric", "dequantizelinear_blocked",
    "maxunpool_export_with_output_shape", "reduce_sum_empty_set_non_reduced_axis_zero", "ai_onnx_ml_binarizer",
    "ai_onnx_ml_array_feature_extractor", "sequence_insert_at_front", "sequence_map_add_2_sequences", "loop16_seq_none",
    "optional_get_element_optional_sequence",
)  # fmt: skip


@pytest.mark.parametrize("name", FEW)
def test_it_is_right(name):
    (test,) = conformance.tests(["node"], f"^test_{name}$")
    assert conformance.judged(test, "tvm") == ("pass", "")


def test_products_that_run_over():
    """The data of four tests of QLinearMatMul has numbers below -128 wrapped around; the standard has them saturate."""
    for test in conformance.tests(["node"], "^test_qlinearmatmul_[23]D_int8"):
        assert conformance.judged(test, "tvm")[0] == "disputed"
        path = f"{test[2]}/model.onnx"
        ((inputs, (wanted,)),) = conformance.data_sets(onnx.load(path), test[2])
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (one.astype("float64") for one in inputs)
        exact = np.rint((a - a_zero) @ (b - b_zero) * (a_scale * b_scale / y_scale)) + y_zero
        ((_, ((got,),)),) = conformance.by_tvm(path, [(inputs, [wanted])])
        over = exact < -128
        assert over.any()
        np.testing.assert_array_equal(got, exact.clip(-128, 127))
        np.testing.assert_array_equal(wanted[~over], exact[~over])
        assert (wanted[over] > 0).all()


# Tests that a backend got wrong, or could not run, with all that it takes given to it.
SHARES = [
    ("openvino", "qlinearmatmul_2D_uint8_float32"), ("openvino", "constant_pad"),
    ("openvino", "nllloss_NCd1d2d3_sum_weight_high_ii"), ("onnxruntime", "nllloss_NCd1d2d3_sum_weight_high_ii"),
]  # fmt: skip


@pytest.mark.parametrize(("backend", "name"), SHARES)
def test_a_backends_share_is_right(backend, name):
    if backend not in placed.usable():
        pytest.skip(f"{backend} cannot be used here")
    (test,) = conformance.tests(["node"], f"^test_{name}$")
    assert conformance.judged(test, f"tvm+{backend}") == ("pass", "")


def test_what_a_backend_takes_nothing_of():
    (test,) = conformance.tests(["node"], "^test_bitwise_not_2d$")
    assert conformance.judged(test, "tvm+dnnl") == ("untouched", "")


def task(what):
    """A run for test_runs_cost_themselves_only."""
    if what == "ends":
        os._exit(3)
    time.sleep(60 if what == "hangs" else 0)
    return "pass", what


def test_runs_cost_themselves_only(tmp_path):
    """A run that ends its process or does not end is counted, the others are made; what was kept is not made again."""
    tasks = {(what,): (what,) for what in ("a", "ends", "b", "hangs", "c")}
    found = dict(apart_runs.run(task, tasks, 2, 4))
    assert {key[0]: verdict for key, (verdict, _) in found.items()} == {
        "a": "pass", "ends": "crashed", "b": "pass", "hangs": "crashed", "c": "pass"
    }  # fmt: skip
    assert "(3)" in found[("ends",)][1]
    chosen = conformance.tests(["node"], "^test_(abs|acos)$")
    first = conformance.all_of(chosen, ["tvm"], 1, tmp_path / "kept")
    assert set(first["tvm"].values()) == {("pass", "")}
    kept = (tmp_path / "kept").read_text()
    (tmp_path / "kept").write_text(kept.splitlines()[0].replace('"pass"', '"wrong"') + "\n")
    again = conformance.all_of(chosen, ["tvm"], 1, tmp_path / "kept")
    assert sorted(verdict for verdict, _ in again["tvm"].values()) == ["pass", "wrong"]


@pytest.mark.parametrize(
    ("name", "engine", "verdict"),
    [("lstm_batchwise", "tvm-sizes", "pass"), ("abs", "tvm-batch", "pass"), ("pow_bcast_scalar", "tvm-batch", "pass"),
     ("sequence_insert_at_back", "tvm-batch", "untouched"), ("gemm_all_attributes", "tvm-batch", "pass"),
     ("group_normalization_example", "tvm-batch", "pass")],
)  # fmt: skip
def test_tests_with_open_dimensions(name, engine, verdict):
    (test,) = conformance.tests(["node"], f"^test_{name}$")
    assert conformance.judged(test, engine)[0] == verdict


@pytest.mark.long
def test_conformance():
    """All of ONNX's tests: as many right as there were, nothing wrong, and a line for what is refused."""
    verdicts = conformance.all_of(conformance.tests(conformance.KINDS, ""), ["tvm"], 2)["tvm"]
    passed = [test for test, (what, _) in verdicts.items() if what == "pass"]
    assert len([kind for kind, _ in passed if kind == "node"]) >= 1311
    assert len([kind for kind, _ in passed if kind.startswith("pytorch")]) == 117
    assert not [test for test, (what, _) in verdicts.items() if what == "crashed"]
    wrong = [name for (_, name), (what, _) in verdicts.items() if what in ("wrong", "disputed")]
    assert not [name for name in wrong if not conformance.RANDOM.search(name) and "qlinearmatmul" not in name]
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


def held(tmp_path, nodes, values, results, weights=(), opset=20, exact=False):
    """Hold what plain TVM gives for nodes against onnx's reference; the values are drawn, or given as arrays."""
    kinds = {name: (helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in values.items()}
    path = tmp_path / "held.onnx"
    onnx.save(model(nodes, kinds, results, weights, opset), path)
    got, wanted = outputs(path, values), by_reference(path, values)
    assert [one.shape for one in got] == [np.shape(one) for one in wanted]
    if exact:
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    else:
        close(got, wanted)


def drawn(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def test_deformed_convolutions(tmp_path):
    """Strides, dilations, uneven paddings, groups of channels and of offsets, offsets that leave the image."""
    node = helper.make_node(
        "DeformConv", ["x", "w", "o", "b", "m"], ["y"],
        strides=[2, 1], dilations=[1, 2], pads=[1, 0, 2, 3], group=2, offset_group=2,
    )  # fmt: skip
    sizes = [(9 + 3 - 3) // 2 + 1, 8 + 3 - 5 + 1]
    values = {"x": drawn(2, 4, 9, 8), "o": 3 * drawn(2, 2 * 9 * 2, *sizes), "m": drawn(2, 2 * 9, *sizes)}
    weights = {"w": drawn(6, 2, 3, 3), "b": drawn(6)}
    held(tmp_path, [node], values, {"y": (TensorProto.FLOAT, [2, 6, *sizes])}, weights)


@pytest.mark.parametrize("onesided", [0, 1])
def test_short_time_fourier_transforms(tmp_path, onesided):
    """Of real and complex signals; the reference says of the steps what ONNX Runtime does."""
    node = helper.make_node("STFT", ["x", "step", "w"], ["y"], onesided=onesided)
    values = {"x": drawn(2, 300, 1 if onesided else 2)}
    weights = {"step": np.array(7), "w": drawn(33)}
    held(tmp_path, [node], values, {"y": (TensorProto.FLOAT, [2, 39, 17 if onesided else 33, 2])}, weights)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("aside", ["half_pixel", "output_half_pixel"])
def test_regions(tmp_path, mode, aside):
    """Of several images, below one element, outside the image, and from right to left."""
    regions = np.array(
        [[2, 3, 20, 17], [4, 4, 4.5, 4.25], [-9, -9, 3, 40], [60, 60, 70, 70], [12, 9, 5, 2], [0, 0, 31.9, 23.9]]
    )
    node = helper.make_node(
        "RoiAlign", ["x", "r", "b"], ["y"], output_height=3, output_width=2, sampling_ratio=2, spatial_scale=0.5,
        mode=mode, coordinate_transformation_mode=aside,
    )  # fmt: skip
    values = {"x": drawn(2, 3, 12, 16), "r": regions.astype("float32"), "b": np.array([0, 1, 1, 0, 1, 0])}
    held(tmp_path, [node], values, {"y": (TensorProto.FLOAT, [6, 3, 3, 2])})


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("aside", ["half_pixel", "output_half_pixel"])
def test_regions_that_say_how_many_samples_they_take(tmp_path, images, aside):
    """Far greater than the image, for which TVM's kernel has no memory, far outside of it, and without extent."""
    regions = np.array(
        [[2, 3, 20, 17], [4, 4, 4.5, 4.25], [-9, -9, 3, 40], [60, 60, 70, 70], [12, 9, 5, 2], [0, 0, 31.9, 23.9],
         [-400, -300, 500, 700], [-90, 3, 900, 4], [5, 5, 5, 5], [-2000, -2000, -1000, 10], [30, 20, 340, 33]]
    )  # fmt: skip
    node = helper.make_node(
        "RoiAlign", ["x", "r", "b"], ["y"], output_height=3, output_width=2, sampling_ratio=0, spatial_scale=0.5,
        coordinate_transformation_mode=aside,
    )  # fmt: skip
    of = np.arange(len(regions)) % images
    values = {"x": drawn(images, 3, 12, 16), "r": regions.astype("float32"), "b": of}
    held(tmp_path, [node], values, {"y": (TensorProto.FLOAT, [len(regions), 3, 3, 2])})


@pytest.mark.parametrize("kind", ["float32", "int64", "uint64", "int8"])
@pytest.mark.parametrize("largest", [0, 1])
def test_the_greatest_and_the_least(tmp_path, kind, largest):
    """Of equal ones the first, along an axis in the middle; whole numbers of 64 bits in full."""
    x = np.random.default_rng(0).integers(0, 5, (2, 9, 3)).astype(kind)
    if kind == "uint64":
        x += np.where(x > 2, np.uint64(2**64 - 9), np.uint64(2**63 - 3))
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1, largest=largest)
    of = {"v": (helper.np_dtype_to_tensor_dtype(x.dtype), [2, 4, 3]), "i": (TensorProto.INT64, [2, 4, 3])}
    held(tmp_path, [node], {"x": x}, of, {"k": np.array([4])}, exact=True)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_determinants(tmp_path, order):
    node = helper.make_node("Det", ["x"], ["y"])
    held(tmp_path, [node], {"x": drawn(2, 3, order, order)}, {"y": (TensorProto.FLOAT, [2, 3])})


def test_the_different_ones_of_a_constant(tmp_path):
    """Along an axis, which TVM cannot, and in the order of their first."""
    of = np.array([[3, 1], [0, 2], [3, 1], [0, 1]], "float32")
    for attributes in ({"axis": 0}, {"axis": 0, "sorted": 0}, {"axis": 1}, {}):
        names = ["u", "first", "inverse", "counts"]
        nodes = [helper.make_node("Unique", ["of"], names, **attributes), helper.make_node("Add", ["u", "x"], ["y"])]
        found = np.unique(of, axis=attributes.get("axis"))
        kinds = {"y": (TensorProto.FLOAT, found.shape)}
        kinds |= {name: (TensorProto.INT64, [None]) for name in names[1:]}
        held(tmp_path, nodes, {"x": np.zeros(1, "float32")}, kinds, {"of": of}, exact=True)


@pytest.mark.parametrize("loss", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_losses_of_a_target_that_is_computed(tmp_path, loss):
    """Of classes of which one is to be ignored and is none."""
    nodes = [
        helper.make_node("ArgMax", ["t"], ["class"], axis=1, keepdims=0),
        helper.make_node("Where", ["ignored", "none", "class"], ["target"]),
        helper.make_node(loss, ["x", "target", "w"], ["y"], ignore_index=90, reduction="mean"),
    ]
    values = {"x": drawn(4, 5, 6), "t": drawn(4, 7, 6)[:, :5], "ignored": drawn(4, 6) > 0}
    weights = {"w": np.abs(drawn(5)), "none": np.array(90)}
    held(tmp_path, nodes, values, {"y": (TensorProto.FLOAT, [])}, weights)


def test_new_axes_from_the_end(tmp_path):
    node = helper.make_node("Unsqueeze", ["x", "axes"], ["y"])
    of = {"y": (TensorProto.FLOAT, [1, 1, 2, 3, 1, 4])}
    held(tmp_path, [node], {"x": drawn(2, 3, 4)}, of, {"axes": np.array([4, -6, 1])}, exact=True)


# What TVM's own converters refuse, or read wrong: {what: (node, inputs, shape of the result, weights, opset)}.
OURS = {
    "a product over an empty list of axes": (
        helper.make_node("ReduceProd", ["x", "of"], ["y"], keepdims=0), {"x": drawn(2, 3)}, [],
        {"of": np.zeros(0, "int64")}, 18,
    ),
    "elements put in, as PyTorch writes it": (
        helper.make_node("ScatterElements", ["x", "of", "u"], ["y"], axis=-1, reduction="none"),
        {"x": drawn(2, 5), "u": drawn(2, 2)}, [2, 5], {"of": np.array([[0, -1], [1, -2]])}, 18,
    ),
    "slices put in, as PyTorch writes it": (
        helper.make_node("ScatterND", ["x", "of", "u"], ["y"], reduction="none"),
        {"x": drawn(4, 5), "u": drawn(2)}, [4, 5], {"of": np.array([[0, -1], [-2, 3]])}, 18,
    ),
    "slices taken from the end": (
        helper.make_node("GatherND", ["x", "of"], ["y"]), {"x": drawn(4, 5, 3)}, [2, 3],
        {"of": np.array([[0, -1], [-2, 3]])}, 18,
    ),
    "slices taken from the end, of each of a batch": (
        helper.make_node("GatherND", ["x", "of"], ["y"], batch_dims=1), {"x": drawn(2, 5, 3)}, [2, 3],
        {"of": np.array([[-1], [2]])}, 18,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OURS)
def test_what_our_converters_gain(tmp_path, what):
    node, values, shape, weights, opset = OURS[what]
    held(tmp_path, [node], values, {"y": (TensorProto.FLOAT, shape)}, weights, opset)


def test_upsampling_to_a_part_of_an_element(tmp_path):
    made = model(
        [helper.make_node("Upsample", ["x", "scales"], ["y"], mode="nearest")],
        {"x": (TensorProto.FLOAT, [1, 2, 3, 4])}, {"y": (TensorProto.FLOAT, [1, 2, 7, 10])},
        {"scales": np.array([1, 1, 2.5, 2.5], "float32")}, 9,
    )  # fmt: skip
    onnx.save(made, tmp_path / "upsample.onnx")
    x = drawn(1, 2, 3, 4)
    rows, columns = ((np.arange(n) / 2.5).astype(int) for n in (7, 10))
    close(outputs(tmp_path / "upsample.onnx", {"x": x}), [x[:, :, rows][..., columns]])


def test_nothing_is_not_concatenated(tmp_path):
    """A cache that is empty at first is no operator that engines would have to know."""
    made = model(
        [helper.make_node("Concat", ["cache", "x"], ["c"], axis=1), helper.make_node("Relu", ["c"], ["y"])],
        {"x": (TensorProto.FLOAT, [2, 3])}, {"y": (TensorProto.FLOAT, [2, 3])}, {"cache": np.zeros((2, 0), "float32")},
    )  # fmt: skip
    onnx.save(made, tmp_path / "cache.onnx")
    read = frontends.load(tmp_path / "cache.onnx").module
    assert sorted(placed.counted(read["main"])) == ["nn.relu"]


def test_parts_of_a_sequence(tmp_path):
    """By the length of each, by a list of lengths, one by one."""
    for split, keepdims, at, shape in (
        (np.array(4), 1, 2, [2, 2]),
        (np.array([3, 7]), 1, 1, [2, 7]),
        (None, 0, 9, [2]),
    ):
        inputs = ["x"] if split is None else ["x", "split"]
        nodes = [
            helper.make_node("SplitToSequence", inputs, ["s"], axis=1, keepdims=keepdims),
            helper.make_node("SequenceAt", ["s", "at"], ["y"]),
        ]
        weights = {"at": np.array(at)} | ({} if split is None else {"split": split})
        held(tmp_path, nodes, {"x": drawn(2, 10)}, {"y": (TensorProto.FLOAT, shape)}, weights, exact=True)


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
    "its input x is of the type float8e5m2, which TVM does not have": (
        [helper.make_node("Identity", ["x"], ["y"])],
        {"x": (TensorProto.FLOAT8E5M2, [2])}, {"y": (TensorProto.FLOAT8E5M2, [2])},
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
    "operators that TVM's ONNX importer lacks: ImageDecoder": (
        [helper.make_node("ImageDecoder", ["x"], ["y"])],
        {"x": (TensorProto.UINT8, [40])}, {"y": (TensorProto.UINT8, [2, 2, 3])},
    ),
    "the operator Det that makes Det_0: of a matrix of 5 rows it is not supported, up to 4 it is": (
        [helper.make_node("Det", ["x"], ["y"])],
        {"x": (TensorProto.FLOAT, [5, 5])}, {"y": (TensorProto.FLOAT, [])},
    ),
    "the operator RoiAlign that makes RoiAlign_0: it takes the greatest of samples of which there are as many": (
        [helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], output_height=2, output_width=2, mode="max")],
        {"x": (TensorProto.FLOAT, [1, 1, 5, 5]), "r": (TensorProto.FLOAT, [1, 4]), "b": (TensorProto.INT64, [1])},
        {"y": (TensorProto.FLOAT, [1, 1, 2, 2])},
    ),
    "the operator RoiAlign that makes RoiAlign_0: how many samples it takes depends on the regions' sizes": (
        [helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], output_height=2, output_width=2)],
        {"x": (TensorProto.FLOAT, [1, 256, 200, 200]), "r": (TensorProto.FLOAT, [9000, 4]),
         "b": (TensorProto.INT64, [9000])},
        {"y": (TensorProto.FLOAT, [9000, 256, 2, 2])},
    ),
    "the operator Unique that makes Unique_0: it compares slices along axis 0 of a tensor of 2 axes": (
        [helper.make_node("Unique", ["x"], ["y"], axis=0)],
        {"x": (TensorProto.FLOAT, [3, 2])}, {"y": (TensorProto.FLOAT, [3, 2])},
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused(tmp_path, why):
    onnx.save(model(*REFUSED[why]), tmp_path / "refused.onnx")
    with pytest.raises(ValueError, match=re.escape(why)) as error:
        frontends.load(tmp_path / "refused.onnx")
    assert str(tmp_path / "refused.onnx") in str(error.value)
    assert "\n" not in str(error.value)


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
