# SPDX-License-Identifier: Apache-2.0
"""What random programs found, each as small as it became: a program that was wrong on a backend, and what it
was."""

import numpy as np
import placed
import pytest
import tvm
from random_programs import running
from tvm import relay

nn = relay.nn


def images(name="x", shape=(2, 3, 5)):
    return relay.var(name, shape=shape, dtype="float32")


def pool_plus_what_is_read_once(kind):
    """oneDNN's pools left a sum out that was their post-operation: it had to be a binary one."""
    x = images(shape=(2, 3, 4, 5))
    pool = getattr(nn, kind)(x, (3, 3), (1, 1), padding=(1, 1))
    return relay.add(relay.tanh(x), pool)


def adaptive_pool_plus():
    x = images()
    return relay.add(nn.adaptive_avg_pool1d(x, [5]), relay.subtract(x, relay.const(0.5)))


def an_argument_given_back(operator):
    """OpenVINO wrote into the output that it knew of when it was given the input: none."""
    x = relay.var("x", shape=(7,), dtype="float32")
    return {
        "copy": relay.copy(x),
        "reshape": relay.reshape(x, (7,)),
        "concatenate": relay.concatenate([x], 0),
        "beside": relay.Tuple([relay.copy(x), nn.relu(x), relay.copy(nn.relu(x))]),
    }[operator]


def made_of_a_constant():
    """OpenVINO ran the pool once, and the sum wrote its result over what had come out."""
    x, y = images("x", (1, 4, 6, 6)), images("y", (1, 4, 6, 6))
    constant = relay.const(np.linspace(-1, 1, 144, dtype="float32").reshape(1, 4, 6, 6))
    pool = nn.avg_pool2d(constant, (3, 3), (1, 1), padding=(1, 1))
    return relay.concatenate([relay.add(pool, x), y, constant], 1)


def one_channel_reshaped():
    """oneDNN's result was a block of 16 channels, 15 of them padding: the reshape read them."""
    x = images(shape=(3, 2, 13))
    weight = relay.const(np.linspace(-1, 1, 6, dtype="float32").reshape(2, 1, 3))
    return relay.reshape(nn.conv1d_transpose(x, weight, channels=1, kernel_size=(3,)), (1, 45))


def attention_of_equal_projections():
    """Query and value were one product, written twice: it was done once, and attention read the other one."""
    x = images(shape=(6, 4))
    weights = [relay.const(np.linspace(-1, last, 16, dtype="float32").reshape(4, 4)) for last in (1, 2)]
    query, key, value = (relay.reshape(nn.dense(x, weights[i]), (2, 3, 4)) for i in (0, 1, 0))
    scores = nn.softmax(nn.batch_matmul(query, key, transpose_b=True))
    return nn.batch_matmul(scores, value, transpose_b=False)


def gelu_of_a_number():
    """ONNX Runtime made FastGelu of it, which wants a dimension, and ended with an error."""
    x = relay.var("x", shape=(), dtype="float32")
    inner = relay.multiply(
        relay.add(x, relay.multiply(relay.power(x, relay.const(3.0)), relay.const(0.044715))), relay.const(0.797885)
    )
    gelu = relay.multiply(relay.multiply(x, relay.const(0.5)), relay.add(relay.tanh(inner), relay.const(1.0)))
    return relay.reshape(gelu, (1, 1, 1, 1))


def clip_behind_a_quantisation():
    """OpenVINO put the clip's bounds into those of the quantisation: all steps between them moved, by up to a half."""
    x = relay.var("x", shape=(9, 40), dtype="float32")
    scale, zero = relay.const(0.0269312), relay.const(114)
    steps = relay.qnn.quantize(relay.multiply(x, relay.const(5.0)), scale, zero, out_dtype="uint8")
    return relay.clip(relay.add(relay.qnn.dequantize(steps, scale, zero), relay.const(3.0)), 0.0, 6.0)


def strides_behind_a_padding(where):
    """OpenVINO took strides of a kernel of one element in front of the padding, and read other elements."""
    x = relay.tanh(relay.var("x", shape=(1, 3, 6, 6), dtype="float32"))
    first, second = (relay.const(np.linspace(-1, last, 9, dtype="float32").reshape(3, 3, 1, 1)) for last in (1, 2))
    if where == "own":
        return nn.conv2d(x, first, strides=(2, 2), padding=(1, 0, 0, 1))
    if where == "of the next":
        return nn.conv2d(relay.tanh(nn.conv2d(x, first, padding=(1, 0, 0, 1))), second, strides=(2, 2), padding=(0, 0))
    x = nn.pad(x, ((0, 0), (0, 0), (1, 0), (0, 1)))
    if where == "nothing done between":
        x = relay.multiply(relay.reshape(x, (1, 3, 49)), relay.const(np.ones((1, 1, 1), "float32")))
        x = relay.reshape(x, (1, 3, 7, 7))
    return nn.conv2d(x, first, strides=(2, 2), padding=(0, 0))


FOUND = {
    "native: attention of equal projections": attention_of_equal_projections,
    "dnnl: max pool + sum": lambda: pool_plus_what_is_read_once("max_pool2d"),
    "dnnl: average pool + sum": lambda: pool_plus_what_is_read_once("avg_pool2d"),
    "dnnl: adaptive pool + sum": adaptive_pool_plus,
    "dnnl: one channel reshaped": one_channel_reshaped,
    "openvino: copy": lambda: an_argument_given_back("copy"),
    "openvino: reshape to the same": lambda: an_argument_given_back("reshape"),
    "openvino: concatenate one": lambda: an_argument_given_back("concatenate"),
    "openvino: copies beside work": lambda: an_argument_given_back("beside"),
    "openvino: a pool of a constant": made_of_a_constant,
    "openvino: a clip behind a quantisation": clip_behind_a_quantisation,
    "openvino: strides and padding": lambda: strides_behind_a_padding("own"),
    "openvino: strides behind a convolution that pads": lambda: strides_behind_a_padding("of the next"),
    "openvino: strides behind a pad": lambda: strides_behind_a_padding("beside"),
    "openvino: strides behind a pad and nothing": lambda: strides_behind_a_padding("nothing done between"),
    "onnxruntime: gelu of a number": gelu_of_a_number,
}


@pytest.mark.parametrize("backend", placed.usable())
@pytest.mark.parametrize("found", FOUND)
def test_it_is_right_now(collage_library, found, backend):
    """On the backend that it was found on and on all others, with other inputs in the same memory, too."""
    import collage

    collage.library.load()
    body = FOUND[found]()
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))
    # As it is: what reads constants alone is not folded.
    told = collage.transform.configuration([backend], only=backend, threads=placed.THREADS)
    hybrid = tvm.get_global_func("collage.partition")(module, told)[0]
    if found.startswith(f"{backend}:"):
        assert placed.regions(hybrid)  # of some of it at least
    one, two = placed.values(module, 1), placed.values(module, 2)
    (wanted,), plain = running.execute([module], [one])
    (got,), again = running.execute([hybrid], [one], times=3)
    assert running.excess(got, wanted) == ""
    assert running.excess(again([two])[0], plain([two])[0]) == ""


def test_outputs_that_move(collage_library):
    """An argument that is given back, to an output that lies elsewhere the second time."""
    if "openvino" not in placed.usable():
        pytest.skip("OpenVINO cannot be used here")
    x = relay.var("x", shape=(7,), dtype="float32")
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.copy(x))))
    hybrid = placed.place(module, "openvino")
    from collage import export
    from tvm.contrib import graph_executor

    executor = graph_executor.GraphModule(export.build(hybrid)["default"](tvm.cpu()))
    value = np.arange(7, dtype="float32")
    executor.set_input(0, value)
    for _ in range(3):
        output = tvm.nd.array(np.full(7, -1, "float32"))
        executor.module["set_output_zero_copy"](0, output)
        executor.run()
        np.testing.assert_array_equal(output.numpy(), value)
