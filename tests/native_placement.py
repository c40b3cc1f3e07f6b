# SPDX-License-Identifier: Apache-2.0
"""Placements without measuring in which kernels of the backend native come first, and dnnl has the rest."""

import json

import tvm

BACKENDS = ("tvm", "dnnl", "native")
# The kernels, by how the names of their composites begin.
KERNELS = {
    "winograd": "winograd", "narrow": "narrow", "upsampled": "upsampled",
    "product": "product", "strip": "strips", "expansion": "expansion", "attention": "attention",
    "standardise": "norm", "layer": "norm", "rms": "norm", "group": "norm", "instance": "norm", "channel": "norm",
    "sum": "norm", "grid": "grid", "ragged": "ragged", "lstm": "recurrent", "gru": "recurrent", "rnn": "recurrent",
}  # fmt: skip


def kernel_of(composite):
    """The kernel that a composite of native stands for; None for those of others."""
    name = composite.removeprefix("native.")
    return None if name == composite else KERNELS[name.split("_")[0]]


def prefer(*kernels, backends=BACKENDS, **options):
    """A function that places a module: on these kernels what they take, the first ones first; no other of native. What
    native_int8 or dnnl_int8 takes it gets where it is among the backends.
    """

    def cost(key):
        key = json.loads(str(key))
        if key["backend"] == "native":
            kernel = kernel_of(key["composite"])
            return 1.0 + 0.01 * kernels.index(kernel) if kernel in kernels else float("inf")
        narrow = {"native_int8": 0.1, "dnnl_int8": 0.1, "dnnl_bf16": 1e5, "native_bf16": 1e5}
        return {"dnnl": 10.0, "tvm": 1e4, **narrow}[key["backend"]]

    def place(module):
        from collage import library, transform

        library.load()
        normal = transform.Normalise()(module)
        told = transform.configuration(list(backends), threads=2, store="/nowhere/costs.jsonl", **options)
        placed, _ = tvm.get_global_func("collage.partition")(normal, told, cost)
        return placed

    return place
