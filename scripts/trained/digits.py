# SPDX-License-Identifier: Apache-2.0
"""Nets that are trained here in seconds on the handwritten digits that scikit-learn ships: which digit it is. One has
dense layers, one convolutions.
"""

import gzip
import os
import subprocess
import sys

import numpy as np

from .task import Question, Trained, shipped

HIDDEN, CHANNELS = 48, (16, 32)
LEARN, TOGETHER = 1400, 397  # the data has 1,797 digits


def _data():
    """(images (n, 1, 8, 8) from 0 to 1, digits), in an order of no meaning."""
    with gzip.open(shipped("sklearn", "datasets", "data", "digits.csv.gz")) as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng(1).permutation(len(table))]
    return table[:, :64].reshape(-1, 1, 8, 8) / 16, table[:, 64].astype(np.int64)


def _trained(images, digits):
    """Two layers by gradient descent: (weights, biases) of each."""
    rng = np.random.default_rng(0)
    x = images.reshape(len(images), 64).astype(np.float64)
    wanted = np.eye(10)[digits]
    layers = [
        [rng.standard_normal((64, HIDDEN)) / 8, np.zeros(HIDDEN)],
        [rng.standard_normal((HIDDEN, 10)) / np.sqrt(HIDDEN), np.zeros(10)],
    ]
    for _ in range(600):
        hidden = np.maximum(x @ layers[0][0] + layers[0][1], 0)
        scores = hidden @ layers[1][0] + layers[1][1]
        chances = np.exp(scores - scores.max(1, keepdims=True))
        wrong = (chances / chances.sum(1, keepdims=True) - wanted) / len(x)
        back = (wrong @ layers[1][0].T) * (hidden > 0)
        for layer, (given, error) in zip(layers, ((x, back), (hidden, wrong)), strict=True):
            layer[0] -= 1.0 * (given.T @ error)
            layer[1] -= 1.0 * error.sum(0)
    return layers


def _windows(images, stride):
    """(n, height, width, channels) as rows of 3x3 windows, padded by 1: (n, rows, columns, 9 * channels)."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = (extent // stride for extent in images.shape[1:3])
    parts = [padded[:, y::stride, x::stride][:, :height, :width] for y in range(3) for x in range(3)]
    return np.concatenate(parts, axis=3)


def _unwindowed(rows, shape, stride):
    """The sum of what windows say of each pixel: _windows turned round."""
    n, height, width, channels = shape
    padded = np.zeros((n, height + 2, width + 2, channels), rows.dtype)
    for number, part in enumerate(np.split(rows, 9, axis=3)):
        y, x = divmod(number, 3)
        padded[:, y : y + height : stride, x : x + width : stride] += part
    return padded[:, 1:-1, 1:-1]


def _trained_convolutions(images, digits):
    """Two convolutions, the second of stride 2, and a dense layer: (weights, biases) of each."""
    rng = np.random.default_rng(0)
    x = images.transpose(0, 2, 3, 1)
    wanted = np.eye(10, dtype=np.float32)[digits]
    shapes = [(9, CHANNELS[0]), (9 * CHANNELS[0], CHANNELS[1]), (16 * CHANNELS[1], 10)]
    layers = [
        [(rng.standard_normal(shape) * np.sqrt(2 / shape[0])).astype(np.float32), np.zeros(shape[1], np.float32)]
        for shape in shapes
    ]
    speed = [[np.zeros_like(one) for one in layer] for layer in layers]
    for _ in range(60):
        for part in np.array_split(rng.permutation(len(x)), 10):
            seen = [_windows(x[part], 1)]
            first = np.maximum(seen[0] @ layers[0][0] + layers[0][1], 0)
            seen.append(_windows(first, 2))
            second = np.maximum(seen[1] @ layers[1][0] + layers[1][1], 0)
            seen.append(second.reshape(len(part), -1))
            scores = seen[2] @ layers[2][0] + layers[2][1]
            chances = np.exp(scores - scores.max(1, keepdims=True))
            wrong = [None, None, (chances / chances.sum(1, keepdims=True) - wanted[part]) / len(part)]
            wrong[1] = (wrong[2] @ layers[2][0].T).reshape(second.shape) * (second > 0)
            wrong[0] = _unwindowed(wrong[1] @ layers[1][0].T, first.shape, 2) * (first > 0)
            for layer, moving, given, error in zip(layers, speed, seen, wrong, strict=True):
                rows, errors = given.reshape(-1, given.shape[-1]), error.reshape(-1, error.shape[-1])
                for number, slope in enumerate((rows.T @ errors, errors.sum(0))):
                    moving[number] = 0.9 * moving[number] - 0.05 * slope
                    layer[number] += moving[number]
    return layers


def _save(path, nodes, weights):
    """Write a net that gives "chances" from "image" as ONNX. Nodes are (operator, inputs, output, attributes)."""
    from onnx import TensorProto, helper, numpy_helper, save

    graph = helper.make_graph(
        [helper.make_node(operator, inputs, [output], **given) for operator, inputs, output, given in nodes],
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("chances", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name) for name, value in weights.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), str(path))


def write_convolutions(path):
    """Train the net of convolutions and write it as ONNX."""
    images, digits = _data()
    (first, of_first), (second, of_second), (last, of_last) = _trained_convolutions(images[:LEARN], digits[:LEARN])
    one, two = CHANNELS
    around = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        ("Conv", ["image", "w1", "b1"], "sums", around),
        ("Relu", ["sums"], "edges", {}),
        # Of stride 2, beginning with the padding: what _windows sees.
        ("Conv", ["edges", "w2", "b2"], "more", {**around, "strides": [2, 2]}),
        ("Relu", ["more"], "strokes", {}),
        ("Flatten", ["strokes"], "flat", {}),
        ("Gemm", ["flat", "w3", "b3"], "scores", {}),
        ("Softmax", ["scores"], "chances", {"axis": 1}),
    ]
    weights = {
        "w1": first.reshape(3, 3, 1, one).transpose(3, 2, 0, 1),
        "w2": second.reshape(3, 3, one, two).transpose(3, 2, 0, 1),
        "w3": last.reshape(4, 4, two, 10).transpose(2, 0, 1, 3).reshape(-1, 10),
        "b1": of_first, "b2": of_second, "b3": of_last,
    }  # fmt: skip
    _save(path, nodes, weights)


def write(path):
    """Train the net of dense layers and write it as ONNX."""
    images, digits = _data()
    (first, of_first), (second, of_second) = _trained(images[:LEARN], digits[:LEARN])
    nodes = [
        ("Flatten", ["image"], "flat", {}),
        ("Gemm", ["flat", "w1", "b1"], "sums", {}),
        ("Relu", ["sums"], "hidden", {}),
        ("Gemm", ["hidden", "w2", "b2"], "scores", {}),
        ("Softmax", ["scores"], "chances", {"axis": 1}),
    ]
    _save(path, nodes, {"w1": first, "b1": of_first, "w2": second, "b2": of_second})


def _learnt():
    """Digits that were learnt from, as many at a time as are asked."""
    images, _ = _data()
    return [{"image": images[start : start + TOGETHER]} for start in range(0, LEARN - TOGETHER + 1, TOGETHER)]


def _ask(net):
    """Digits that were not learnt from; a tenth may be read wrong: people write badly, and the net is small."""
    images, digits = _data()
    (chances,) = net({"image": images[LEARN:]})
    right = int((chances.argmax(1) == digits[LEARN:]).sum())
    expected = f"at least {TOGETHER * 9 // 10} right"
    return [
        Question(
            f"which digits {TOGETHER} images show that it never saw",
            expected,
            expected if right >= TOGETHER * 9 // 10 else f"{right} right",
            right / TOGETHER,
        )
    ]


def models(_tree, folder):
    def made(name):
        path = folder / f"{name}.onnx"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            # Of so small products more threads would only wait for each other.
            alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            subprocess.run([sys.executable, "-m", __name__, str(path)], check=True, env=alone)
        return path

    return [
        Trained(name, "", lambda name=name: made(name), _ask, ("--input-shape", f"image:{TOGETHER},1,8,8"), _learnt)
        for name in ("digits", "digits-conv")
    ]


if __name__ == "__main__":
    (write_convolutions if sys.argv[1].endswith("-conv.onnx") else write)(sys.argv[1])
