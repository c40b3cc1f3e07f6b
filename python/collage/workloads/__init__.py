# SPDX-License-Identifier: Apache-2.0
"""The benchmark networks, built in code: ``workload:NAME`` on the command line.

Float32, weights random but always the same. The first five are the paper's; the others are the same
architectures whole, and a few more. NAME is of batch 1, NAME@8 of batch 8.
"""

import difflib
import functools
from collections import namedtuple

from . import bert, dcgan, decoder, efficientnet, kernels, mobilenet, nasnet, resnet, unet, vit, yolo
from .network import count_operators

Workload = namedtuple("Workload", "build description")

WORKLOADS = {
    "bert_full": Workload(bert.bert_full, "8 encoder layers on [1, 64, 256]: 528 operators"),
    "dcgan": Workload(dcgan.dcgan, "generator and discriminator on [1, 100]: 30 operators, 53 M parameters"),
    "nasneta": Workload(nasnet.nasneta, "17 cells on [1, 64, 56, 56]: 427 operators"),
    "resnet50_3d": Workload(resnet.resnet50_3d, "after the stem, on [1, 64, 3, 56, 56]: 116 operators"),
    "resnext50_32x4d": Workload(resnet.resnext50_32x4d, "after the stem, on [1, 64, 56, 56]: 116 operators"),
    "bert": Workload(bert.bert, "TASO's 8 layers without softmax on [64, 1024]; for timing only"),
    "bert_base": Workload(bert.bert_base, "12 layers of 768 units with GELU on [1, 384, 768]"),
    "mobilenet_v2": Workload(mobilenet.mobilenet_v2, "after the stem, on [1, 32, 224, 224]"),
    "mobilenet_v3": Workload(mobilenet.mobilenet_v3, "MobileNetV3-Large, whole, on [1, 3, 224, 224]"),
    "resnet50_3d_full": Workload(resnet.resnet50_3d_full, "whole, on [1, 3, 16, 112, 112]"),
    "resnext50_32x4d_full": Workload(resnet.resnext50_32x4d_full, "whole, on [1, 3, 224, 224]"),
    "yolov3": Workload(yolo.yolov3, "Darknet-53 and three heads on [1, 3, 416, 416]"),
    "bert_base_128": Workload(
        functools.partial(bert.bert_base, tokens=128), "12 layers of 768 units with GELU on [1, 128, 768]"
    ),
    "bert_base_masked": Workload(
        functools.partial(bert.bert_base, tokens=128, masked=True), "bert_base_128 with an attention mask, [1, 128]"
    ),
    "efficientnet_b0": Workload(efficientnet.efficientnet_b0, "whole, on [1, 3, 224, 224]"),
    "unet": Workload(unet.unet, "four levels, 32 to 512 channels, on [1, 3, 256, 256]"),
    "vit_b16": Workload(vit.vit_b16, "whole, on [1, 3, 224, 224]"),
    "gpt2_block": Workload(decoder.gpt2_block, "one decoder block of GPT-2 on [1, 128, 768] and a mask"),
    "t5_block": Workload(decoder.t5_block, "one decoder block of T5 on [1, 32, 512], attending to [1, 128, 512]"),
    "kernels": Workload(kernels.kernels, "a grid of single layers, for collage bench kernels"),
}

PAPER = ("bert_full", "dcgan", "nasneta", "resnet50_3d", "resnext50_32x4d")

__all__ = ["PAPER", "WORKLOADS", "Workload", "build", "count_operators"]


def build(name):
    """Build the workload ``name``, NAME or NAME@BATCH: (IRModule with parameters as variables,
    {name: numpy array}).

    Raises ValueError with the nearest name where there is no such workload, or that it has no such batch.
    """
    base, at, batch = name.partition("@")
    if base not in WORKLOADS:
        near = difflib.get_close_matches(base, WORKLOADS, n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"there is no workload {base!r}{hint}; known are: {', '.join(WORKLOADS)}")
    if not at:
        return WORKLOADS[base].build()
    if not (batch.isdecimal() and int(batch) > 0):
        raise ValueError(f"workload {name}: {batch!r} is no batch; write {base}@8, for instance")
    if base == "bert":
        raise ValueError(f"workload {name}: bert has rows and no batch")
    return WORKLOADS[base].build(batch=int(batch))
