# SPDX-License-Identifier: Apache-2.0
"""Images whose sides stay open, and what else is read otherwise where sizes are known only when a network runs."""

import numpy as np
import pytest
from collage import export, frontends, open_images, transform
from onnx_networks import FLOAT, INT, INT32, UINT8, answers, hold, node, normal, ran, values, weights, write
from tvm import topi
from tvm.topi.x86 import conv2d

# All modes that an axis of open sizes can have: (how far, attributes); sizes are those of the input `like`.
RESIZES = [
    ("scales", [1, 1, 2, 3], {
        "mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ("scales", [1, 1, 3, 1], {"mode": "nearest"}),
    ("scales", [1, 1, 1.5, 0.75], {"mode": "nearest", "nearest_mode": "ceil"}),
    ("scales", [1, 1, 0.5, 2], {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}),
    ("scales", [1, 1, 2, 0.4], {"mode": "cubic", "cubic_coeff_a": -0.5}),
    ("sizes", "like", {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
    ("sizes", "like", {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    ("scales", [1, 1, 1.3, 0.7], {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}),
    ("sizes", "like", {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}),
    ("sizes", "like", {"mode": "cubic"}),
    ("sizes", [5, 7], {"mode": "linear", "axes": [2, 3]}),
]  # fmt: skip


def resizes(path):
    nodes = [
        node("Shape", ["like"], ["of_like"], start=2),
        node("Shape", ["x"], ["of_x"], end=2),
        node("Concat", ["of_x", "of_like"], ["wanted"], axis=0),
    ]
    inside, made = {}, {}
    for i, (kind, how, attributes) in enumerate(RESIZES):
        by = "wanted" if how == "like" else f"by{i}"
        if how != "like":
            inside[by] = np.array(how, "float32" if kind == "scales" else "int64")
        asked = ["x", "", by] if kind == "scales" else ["x", "", "", by]
        nodes.append(node("Resize", asked, [f"out{i}"], **attributes))
        made[f"out{i}"] = ["N", 2, f"h{i}", f"w{i}"]
    given = values(x=["N", 2, "H", "W"], like=["N", 2, "I", "J"])
    return write(path, nodes, given, values(**made), weights(**inside), opset=19)


def unet(path):
    """What makes images larger, each in front of a convolution, and a sum of what comes out."""
    grown = [
        node("Resize", ["x", "", "twice"], ["a"], mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
        node("ConvTranspose", ["x", "wt"], ["b"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 0]),
        node("ConvTranspose", ["x", "wg"], ["c"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4,
             output_padding=[1, 1], group=2),
        node("ConvTranspose", ["x", "wd"], ["d"], kernel_shape=[2, 2], strides=[2, 2], dilations=[2, 2],
             pads=[0, 0, 1, 1]),
        node("ConvTranspose", ["x", "w1"], ["g"], kernel_shape=[1, 1], strides=[2, 2]),
        node("DepthToSpace", ["x"], ["e"], blocksize=2, mode="DCR"),
        node("DepthToSpace", ["x"], ["f"], blocksize=2, mode="CRD"),
    ]  # fmt: skip
    # TVM has another expression for the sizes of each.
    grown += [
        node("Resize", ["x", "", "four"], ["p"], mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
        node("Resize", ["a", "", "twice"], ["q"], mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
        node("Add", ["p", "q"], ["s"]),
    ]  # fmt: skip
    convolved = [
        node("Conv", [one, "w2" if one in "ef" else "w8"], [f"{one}o"], kernel_shape=[1, 1]) for one in "abcdefgs"
    ]
    inside = weights(
        twice=np.array([1, 1, 2, 2], "float32"), four=np.array([1, 1, 4, 4], "float32"),
        wt=(8, 8, 3, 2), wg=(8, 4, 3, 3), wd=(8, 8, 2, 2),
        w1=(8, 8, 1, 1), w8=(4, 8, 1, 1), w2=(4, 2, 1, 1),
    )  # fmt: skip
    made = {f"{one}o": ["N", 4, f"h{one}", f"w{one}"] for one in "abcdefgs"}
    return write(path, grown + convolved, values(x=["N", 8, "H", "W"]), values(**made), inside)


def grouped(path):
    """Convolutions of which TVM chooses a schedule by sizes: of one place, depthwise (with windows that are larger than
    small images), in groups, in steps.
    """
    nodes = [
        node("Conv", ["x", "w1"], ["a"], kernel_shape=[1, 1], strides=[2, 2]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "wd"], ["c"], kernel_shape=[5, 5], pads=[2] * 4, group=16),
        node("Conv", ["c", "wg"], ["d"], kernel_shape=[3, 3], pads=[1] * 4, group=4),
        node("Conv", ["d", "w2"], ["out"], kernel_shape=[1, 1]),
    ]
    inside = weights(w1=(16, 3, 1, 1), wd=(16, 1, 5, 5), wg=(16, 4, 3, 3), w2=(8, 16, 1, 1))
    return write(path, nodes, values(x=["N", 3, "H", "W"]), values(out=["N", 8, "h", "w"]), inside)


def shapes(path):
    """Operators that ours read with sizes, or without."""
    zero, half = np.array(0, "uint8"), np.array(0.05, "float32")
    pads = {"edge": [0, 2, 0, 1], "reflect": [0, 1, 0, 2], "wrap": [0, 2, 0, 2]}
    nodes = [
        node("Trilu", ["x"], ["upper"], upper=1),
        node("Trilu", ["x", "one"], ["lower"], upper=0),
        node("Split", ["x"], ["first", "second", "third"], axis=1, num_outputs=3),
        node("Shape", ["x"], ["of_x"]),
        node("Concat", ["of_x", "ones"], ["around"], axis=0),
        node("Pad", ["x", "around", "two"], ["padded"]),
        node("Pad", ["x", "rows", "two", "axes"], ["taller"]),
        *(node("Pad", ["x", f"by_{mode}"], [mode], mode=mode) for mode in pads),
        node("QuantizeLinear", ["x", "half", "zero"], ["bytes"]),
        node("DequantizeLinear", ["bytes", "half", "zero"], ["back"]),
        node("DynamicQuantizeLinear", ["x"], ["q", "scale", "shift"]),
        node("Reshape", ["q", "cubic"], ["cube"]),
        node("MatMulInteger", ["cube", "turned", "shift"], ["product"]),
        node("Dropout", ["x"], ["same", "mask"]),
        node("Cast", ["mask"], ["kept"], to=FLOAT),
    ]
    inside = weights(
        one=np.array(1), ones=np.array([1, 2]), two=np.array(2, "float32"), rows=np.array([1, 2]), axes=np.array([-2]),
        half=half, zero=zero, turned=np.arange(12, dtype="int8").reshape(4, 3) - 6, cubic=np.array([1, -1, 4]),
        **{f"by_{mode}": np.array(one) for mode, one in pads.items()},
    )  # fmt: skip
    made = {
        name: ["a" + name, "b" + name]
        for name in ("upper", "lower", "first", "second", "third", "padded", "taller", *pads, "back", "kept")
    }
    declared = values(**made, product=(6, [1, "places", 3]))
    return write(path, nodes, values(x=["N", "M"]), declared, inside, opset=19)


def pools(path):
    """Windows whose number is rounded up, and with a padding that keeps the sizes."""
    up = {"ceil_mode": 1, "kernel_shape": [3, 2], "strides": [2, 2]}
    nodes = [
        node("MaxPool", ["x"], ["most"], **up),
        node("MaxPool", ["x"], ["padded"], pads=[1, 0, 1, 0], **up),
        node("AveragePool", ["x"], ["mean"], pads=[1, 0, 1, 0], **up),
        node("AveragePool", ["x"], ["whole"], pads=[1, 0, 1, 0], count_include_pad=1, **up),
        node("MaxPool", ["x"], ["same"], kernel_shape=[3, 2], auto_pad="SAME_UPPER"),
        node("AveragePool", ["x"], ["lower"], kernel_shape=[2, 4], auto_pad="SAME_LOWER"),
        node("MaxPool", ["x"], ["stepped"], kernel_shape=[3, 4], strides=[2, 3], auto_pad="SAME_UPPER"),
        node("AveragePool", ["x"], ["inside"], kernel_shape=[4, 3], strides=[3, 1], auto_pad="SAME_LOWER"),
        node("AveragePool", ["x"], ["all"], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER",
             count_include_pad=1),
        node("Conv", ["stepped", "w"], ["seen"], kernel_shape=[3, 4], strides=[2, 2], auto_pad="SAME_LOWER"),
        node("Conv", ["all", "wd"], ["apart"], kernel_shape=[2, 3], auto_pad="SAME_UPPER", group=3),
        node("GroupNormalization", ["x", "s", "b"], ["even"], num_groups=3),
    ]  # fmt: skip
    names = ("most", "padded", "mean", "whole", "same", "lower", "stepped", "inside", "all", "seen", "apart", "even")
    made = {name: ["N", 3, f"h{name}", f"w{name}"] for name in names}
    inside = weights(w=(3, 3, 3, 4), wd=(3, 1, 2, 3), s=(3,), b=(3,))
    return write(path, nodes, values(x=["N", 3, "H", "W"]), values(**made), inside, opset=21)


def in_bytes(path):
    """Convolutions of whole numbers, by one scale and by one for each channel."""
    scale, zero = np.array(0.04, "float32"), np.array(120, "uint8")
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("QLinearConv", ["q", "scale", "zero", "w", "scales", "none", "wider", "zero", "b"], ["c"],
             kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
        node("QLinearConv", ["c", "wider", "zero", "v", "fine", "zero0", "scale", "zero"], ["d"],
             pads=[1] * 4, group=2),
        node("ConvInteger", ["q", "w", "zero", "zero0"], ["whole"], auto_pad="SAME_LOWER", kernel_shape=[3, 3]),
        node("ConvInteger", ["q", "w"], ["bare"], pads=[1] * 4, strides=[1, 2]),
    ]  # fmt: skip
    rng = np.random.default_rng(3)
    inside = weights(
        scale=scale, zero=zero, wider=np.array(0.3, "float32"), fine=np.array(1e-3, "float32"),
        none=np.zeros(4, "int8"), zero0=np.array(0, "int8"),
        w=rng.integers(-90, 90, (4, 3, 3, 3)).astype("int8"), v=rng.integers(-90, 90, (4, 2, 3, 3)).astype("int8"),
        scales=np.array([0.01, 0.02, 0.03, 0.005], "float32"), b=np.array([500, -300, 0, 70], "int32"),
    )  # fmt: skip
    made = values(
        d=(UINT8, ["N", 4, "h", "w"]), whole=(INT32, ["N", 4, "H", "W"]), bare=(INT32, ["N", 4, "i", "j"])
    )  # fmt: skip
    return write(path, nodes, values(x=["N", 3, "H", "W"]), made, inside)


def sampled(path):
    """What looks at places of images, signals and matrices, of which there may be any number."""
    nodes = [
        node("RoiAlign", ["image", "boxes", "which"], ["regions"], output_height=2, output_width=3, sampling_ratio=2,
             coordinate_transformation_mode="half_pixel"),
        node("RoiAlign", ["image", "boxes", "which"], ["most"], output_height=2, output_width=2, sampling_ratio=1,
             mode="max"),
        node("STFT", ["signal", "step", "window"], ["waves"]),
        node("Det", ["matrices"], ["volume"]),
        node("DeformConv", ["x", "w", "offset"], ["bent"], kernel_shape=[2, 2]),
    ]  # fmt: skip
    inside = weights(
        image=(1, 2, 6, 6), step=np.array(3), window=np.ones(4, "float32"), w=(3, 2, 2, 2),
    )  # fmt: skip
    given = values(
        boxes=["R", 4], which=(INT, ["R"]), signal=["N", 10, 1], matrices=["N", 3, 3], x=["N", 2, 4, 4],
        offset=["N", 8, 3, 3],
    )  # fmt: skip
    made = values(regions=["R", 2, 2, 3], most=["R", 2, 2, 2], waves=["N", 3, 3, 2], volume=["N"], bent=["N", 3, 3, 3])
    return write(path, nodes, given, made, inside, opset=19)


def looked_at(number, regions):
    return {
        "boxes": np.array([[0, 0, 3, 4], [1, 1, 5, 5], [2, 0, 4, 3]], "float32")[:regions],
        "which": np.zeros(regions, int),
        "signal": normal(1, number, 10, 1), "matrices": normal(2, number, 3, 3), "x": normal(3, number, 2, 4, 4),
        "offset": normal(4, number, 8, 3, 3),
    }  # fmt: skip


def recurrent(path):
    """Layers over sequences of one length, any number at once; with states that are given and without."""
    nodes = [
        node("LSTM", ["x", "wl", "rl", "bl"], ["", "lstm"], hidden_size=6),
        node("GRU", ["x", "wg", "rg", "", "", "h"], ["gru"], hidden_size=6, direction="bidirectional",
             linear_before_reset=1),
        node("RNN", ["x", "wr", "rr"], ["rnn"], hidden_size=6, direction="reverse"),
    ]  # fmt: skip
    inside = weights(wl=(1, 24, 4), rl=(1, 24, 6), bl=(1, 48), wg=(2, 18, 4), rg=(2, 18, 6), wr=(1, 6, 4), rr=(1, 6, 6))
    made = values(lstm=[1, "N", 6], gru=[5, 2, "N", 6], rnn=[5, 1, "N", 6])
    return write(path, nodes, values(x=[5, "N", 4], h=[2, "N", 6]), made, inside)


def slices(path):
    """Halves of known channels as PyTorch writes them, and bounds of all kinds along open sides, in front of groups."""
    cuts = {  # axes, starts, ends, steps; "half" and "less" are computed of the height
        "inner": ([2, 3], [1, 1], [-1, 99], [1, 1]), "last": ([-1, 2], [-2, 0], [2**63 - 1, -1], [1, 2]),
        "upper": ([2], [0], "half", [1]), "lower": ([2, 1], "half and 2", [99, 6], None),
        "most": ([1, 2, 3], [0, 0, -3], "4, less and 99", [2, 1, 1]),
    }  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["channels"]), node("Div", ["channels", "two"], ["middle"]),
        node("Slice", ["x", "zero", "middle", "one"], ["front"]),
        node("Slice", ["x", "middle", "channels", "one"], ["back"]),
        node("Shape", ["x"], ["side"], start=-2, end=3), node("Div", ["side", "two"], ["half"]),
        node("Slice", ["shape", "two", "three"], ["height"]), node("Sub", ["height", "one"], ["less"]),
        node("Concat", ["half", "two"], ["half and 2"], axis=0),
        node("Concat", ["four", "less", "far"], ["4, less and 99"], axis=0),
    ]  # fmt: skip
    inside = {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "far": 99}
    inside = {name: np.array([number]) for name, number in inside.items()}
    for name, (axes, starts, ends, steps) in cuts.items():
        given = []
        for part, bound in (("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps)):
            if isinstance(bound, list):
                inside[f"{name}_{part}"] = np.array(bound)
                bound = f"{name}_{part}"
            given += [bound] if bound else []
        nodes.append(node("Slice", ["x", *given], [name]))
    made = {}
    for name, channels in {"front": 3, "back": 3, "inner": 6, "last": 6, "upper": 6, "lower": 4, "most": 2}.items():
        groups = channels // 2 if channels > 3 else channels
        inside[f"{name}_weights"] = (channels, channels // groups, 1, 1)
        nodes.append(
            node("Conv", [name, f"{name}_weights"], [f"{name}_out"], kernel_shape=[1, 1], group=groups)
        )  # fmt: skip
        made[f"{name}_out"] = ["N", channels, f"h_{name}", f"w_{name}"]
    return write(path, nodes, values(x=["N", 6, "H", "W"]), values(**made), weights(**inside), opset=15)


SIDES = ((1, (6, 8)), (2, (9, 4)), (1, (3, 2)))
NETWORKS = {
    resizes: (
        {"x": [0, 2, 3], "like": [0, 2, 3]},
        [{"x": normal(n, n, 2, *sides), "like": normal(n, n, 2, 7, 5)} for n, sides in SIDES],
    ),
    unet: ({"x": [0, 2, 3]}, [{"x": normal(n, n, 8, *sides)} for n, sides in SIDES]),
    pools: ({"x": [0, 2, 3]}, [{"x": normal(n, 1, 3, 5 + n, 6 + n)} for n in range(4)]),
    slices: ({"x": [0, 2, 3]}, [{"x": normal(n, n, 6, *sides)} for n, sides in SIDES]),
    in_bytes: ({"x": [0, 2, 3]}, [{"x": normal(n, n, 3, *sides)} for n, sides in SIDES]),
    grouped: ({"x": [0, 2, 3]}, [{"x": normal(n, n, 3, *sides)} for n, sides in SIDES]),
    shapes: ({"x": [0, 1]}, [{"x": normal(n, *sides)} for n, sides in ((1, (4, 6)), (2, (8, 7)))]),
    sampled: (
        {name: [0] for name in ("boxes", "which", "signal", "matrices", "x", "offset")},
        [looked_at(1, 3), looked_at(3, 1)],
    ),
    recurrent: (
        {"x": [1], "h": [1]},
        [{"x": normal(n, 5, n, 4), "h": normal(n + 9, 2, n, 6)} for n in (1, 3)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS, ids=lambda one: one.__name__)
def test_open_sizes(network, tmp_path):
    path, (dynamic, inputs) = network(tmp_path / "network.onnx"), NETWORKS[network]
    read = frontends.load(path, dynamic=dynamic)
    model = export.runnable(transform.Normalise()(read.module))
    steps = 1 if network is in_bytes else 0  # what stands between two may be rounded the other way
    for given in inputs:
        hold(ran(model, given), answers(path, given), steps)


def test_a_batch_that_is_open_is_no_axis_that_is_resized(tmp_path):
    """Then TVM's operator does it, which engines know."""
    path = write(
        tmp_path / "network.onnx",
        [node("Resize", ["x", "", "", "to"], ["out"], mode="linear")],
        values(x=["N", 2, 4, 4]), values(out=["N", 2, 8, 8]), weights(to=np.array([1, 2, 8, 8])),
    )  # fmt: skip
    read = frontends.load(path, dynamic={"x": [0]})
    assert list(read.info()["operator_counts"]) == ["image.resize2d"]
    model = export.runnable(read.module)
    for count in (1, 3):
        given = {"x": normal(count, count, 2, 4, 4)}
        whole = [answers(path, {"x": given["x"][i : i + 1]})[0] for i in range(count)]
        hold(ran(model, given), [np.concatenate(whole)])


@pytest.mark.parametrize(
    ("operator", "attributes", "why"),
    [
        ("Resize", {"mode": "linear", "antialias": 1}, "antialias is supported only for sizes that are known"),
        ("Resize", {"mode": "linear", "exclude_outside": 1},
         "exclude_outside is supported only for sizes that are known"),
        ("Resize", {"mode": "linear", "keep_aspect_ratio_policy": "not_larger"},
         "keep_aspect_ratio_policy is supported only for sizes that are known"),
        ("Resize", {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
         "tf_crop_and_resize is supported only for sizes that are known"),
        ("MaxPool", {"kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1},
         "whether its last window begins behind"),
    ],
)  # fmt: skip
def test_what_wants_sizes_is_named(tmp_path, operator, attributes, why):
    by, roi, to = np.array([1, 1, 2, 2], "float32"), np.arange(8, dtype="float32"), np.array([1, 2, 8, 8])
    inside = weights(by=by, roi=roi, to=to)
    given = ["x"] if operator == "MaxPool" else ["x", "roi", "by"]
    if "keep_aspect_ratio_policy" in attributes:
        given = ["x", "", "", "to"]
    path = write(
        tmp_path / "network.onnx",
        [node(operator, given, ["out"], **attributes)],
        values(x=["N", 2, "H", "W"]), values(out=["N", 2, "h", "w"]), inside, opset=18,
    )  # fmt: skip
    with pytest.raises(ValueError, match=f"the operator {operator} that makes .*: {why}"):
        frontends.load(path, dynamic={"x": [0, 2, 3]})


def test_an_open_batch_leaves_groups_to_the_template(tmp_path, monkeypatch):
    """Only sides that are open take the slow way."""

    def refuse(*_given, **_named):
        raise AssertionError("each place is a sum")

    monkeypatch.setattr(topi.nn, "group_conv2d_nchw", refuse)
    path = grouped(tmp_path / "network.onnx")
    given = {"x": normal(1, 2, 3, 6, 8)}
    model = export.runnable(frontends.load(path, {}, {"x": (1, 3, 6, 8)}, dynamic={"x": [0]}).module)
    hold(ran(model, given), answers(path, given))
    with pytest.raises(Exception, match="each place is a sum"):
        export.runnable(frontends.load(path, dynamic={"x": [0, 2, 3]}).module)


def test_paddings_of_an_open_batch_are_numbers(tmp_path):
    """auto_pad goes by the sides, and they are known."""
    path = pools(tmp_path / "network.onnx")
    module = frontends.load(path, {}, {"x": (1, 3, 6, 8)}, dynamic={"x": [0]}).module
    assert "dyn.nn.pad(" not in str(module["main"])
    assert "dyn.nn.pad(" in str(frontends.load(path, dynamic={"x": [0, 2, 3]}).module["main"])


def test_schedules_are_put_back():
    theirs = conv2d._get_default_config
    with pytest.raises(KeyError), open_images.schedules():
        assert conv2d._get_default_config is not theirs
        raise KeyError
    assert conv2d._get_default_config is theirs


def test_indices_of_open_axes(tmp_path):
    """A ScatterND over an open axis takes places from behind."""
    path = write(
        tmp_path / "network.onnx", [node("ScatterND", ["x", "at", "new"], ["out"])],
        values(x=["N", 2], at=(INT, [1, 1])), values(out=["N", 2]), weights(new=np.ones((1, 2), "float32")),
    )  # fmt: skip
    read = frontends.load(path, dynamic={"x": [0]})
    model = export.runnable(read.module)
    given = {"x": normal(1, 3, 2), "at": np.array([[-1]])}
    hold(ran(model, given), answers(path, given))
