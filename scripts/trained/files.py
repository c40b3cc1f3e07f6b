# SPDX-License-Identifier: Apache-2.0
"""Magika: of which type a file is, by its first and last kilobyte."""

import json

import numpy as np

from .task import Question, Trained, shipped

TREE_FILES = {
    "python/collage/frontends.py": "python",
    "pass/placing/border.go": "go",
    "byoc/runtime/adopt.cc": "cpp",
    "README.md": "markdown",
    "scripts/lock.sh": "shell",
    "pyproject.toml": "toml",
    "docs/schemas/compile.json": "json",
    "Makefile": "makefile",
    "CMakeLists.txt": "cmake",
}


def _features(content, config):
    """What the model takes of a file: the numbers of its first and last bytes, without white space around them."""
    pad, block = config["padding_token"], config["block_size"]
    first, last = config["beg_size"], config["end_size"]
    begin = list(content[:block].lstrip()[:first])
    end = list(content[-block:].rstrip()[-last:])
    numbers = begin + [pad] * (first - len(begin)) + [pad] * (last - len(end)) + end
    return np.array([numbers], dtype=np.int32)


def _ask(tree):
    def ask(net):
        config = json.loads(shipped("magika", "models", "standard_v3_3", "config.min.json").read_text())
        labels = config["target_labels_space"]
        shown = [(name, (tree / name).read_bytes(), label) for name, label in TREE_FILES.items()]
        shown.append(("digits.csv.gz", shipped("sklearn", "datasets", "data", "digits.csv.gz").read_bytes(), "gzip"))
        shown.append(("china.jpg", shipped("sklearn", "datasets", "images", "china.jpg").read_bytes(), "jpeg"))
        questions = []
        for name, content, label in shown:
            (scores,) = net({"bytes": _features(content, config)})
            questions.append(Question(f"the type of {name}", label, labels[int(scores[0].argmax())]))
        return questions

    return ask


def models(tree, _folder):
    return [
        Trained(
            "magika",
            "magika",
            lambda: shipped("magika", "models", "standard_v3_3", "model.onnx"),
            _ask(tree),
            ("--input-shape", "bytes:1,2048"),
        )
    ]
