# SPDX-License-Identifier: Apache-2.0
"""A net that is trained here in seconds on the handwritten digits that scikit-learn ships: which digit it is."""

import gzip
import os
import subprocess
import sys

import numpy as np

from .task import Question, Trained, shipped

HIDDEN, LEARN, TOGETHER = 48, 1400, 397  # the data has 1,797 digits


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


def write(path):
    """Train the net and write it as ONNX."""
    from onnx import TensorProto, helper, numpy_helper, save

    images, digits = _data()
    (first, of_first), (second, of_second) = _trained(images[:LEARN], digits[:LEARN])
    weights = {"w1": first, "b1": of_first, "w2": second, "b2": of_second}
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["flat"]),
            helper.make_node("Gemm", ["flat", "w1", "b1"], ["sums"]),
            helper.make_node("Relu", ["sums"], ["hidden"]),
            helper.make_node("Gemm", ["hidden", "w2", "b2"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["chances"], axis=1),
        ],
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("chances", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), str(path))


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
        )
    ]


def models(_tree, folder):
    def file():
        path = folder / "digits.onnx"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            # Of so small products more threads would only wait for each other.
            alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            subprocess.run([sys.executable, "-m", __name__, str(path)], check=True, env=alone)
        return path

    return [Trained("digits", "", file, _ask, ("--input-shape", f"image:{TOGETHER},1,8,8"))]


if __name__ == "__main__":
    write(sys.argv[1])
