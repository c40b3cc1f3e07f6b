# SPDX-License-Identifier: Apache-2.0
"""Which networks there are: {name: a function that gives (module, example inputs)}."""

import timm
import torch
import torchvision

from . import sequences, vision


def torchvision_network(name, size=224, **options):
    """One of torchvision's, for one image."""
    return lambda: (getattr(torchvision.models, name)(weights=None, **options), (torch.randn(1, 3, size, size),))


def timm_network(name, size=224):
    """One of timm's, for one image."""
    return lambda: (timm.create_model(name, pretrained=False), (torch.randn(1, 3, size, size),))


def batch(make, count):
    """The same network for so many of its inputs at once."""

    def made():
        network, inputs = make()
        return network, tuple(one.repeat(count, *[1] * (one.dim() - 1)) for one in inputs)

    return made


NETWORKS = {
    # Classification: plain, depthwise, squeeze-and-excitation, dense and branching, transformers, mixers.
    "resnet18": torchvision_network("resnet18"),
    "resnet50": torchvision_network("resnet50"),
    "resnet50_b8": batch(torchvision_network("resnet50"), 8),
    "squeezenet1_1": torchvision_network("squeezenet1_1"),
    "densenet121": torchvision_network("densenet121"),
    "googlenet": torchvision_network("googlenet", init_weights=True, aux_logits=False),
    "inception_v3": torchvision_network("inception_v3", 299, init_weights=True, aux_logits=False),
    "mobilenet_v2": torchvision_network("mobilenet_v2"),
    "mobilenet_v2_b8": batch(torchvision_network("mobilenet_v2"), 8),
    "mobilenet_v3_large": torchvision_network("mobilenet_v3_large"),
    "mnasnet1_0": torchvision_network("mnasnet1_0"),
    "shufflenet_v2_x1_0": torchvision_network("shufflenet_v2_x1_0"),
    "efficientnet_b0": torchvision_network("efficientnet_b0"),
    "regnet_y_400mf": torchvision_network("regnet_y_400mf"),
    "ghostnet_100": timm_network("ghostnet_100"),
    "repvgg_a0": timm_network("repvgg_a0"),
    "hrnet_w18_small": timm_network("hrnet_w18_small"),
    "res2net50_14w_8s": timm_network("res2net50_14w_8s"),
    "convnext_tiny": torchvision_network("convnext_tiny"),
    "edgenext_small": timm_network("edgenext_small"),
    "poolformer_s12": timm_network("poolformer_s12"),
    "mixer_s16_224": timm_network("mixer_s16_224"),
    "vit_b_32": torchvision_network("vit_b_32"),
    "deit_tiny": timm_network("deit_tiny_patch16_224"),
    "eva02_tiny": timm_network("eva02_tiny_patch14_224"),
    "swin_t": torchvision_network("swin_t"),
    "maxvit_t": torchvision_network("maxvit_t"),
    "coatnet_0": timm_network("coatnet_0_rw_224"),
    "levit_128s": timm_network("levit_128s"),
    "efficientformer_l1": timm_network("efficientformer_l1"),
    "mobilevit_s": timm_network("mobilevit_s", 256),
    # Detection, segmentation, super-resolution, generation, video, point clouds.
    "detector": vision.detector,
    "deeplabv3_mobilenet": vision.deeplab,
    "lraspp_mobilenet": vision.lraspp,
    "espcn": vision.espcn,
    "gan": vision.gan,
    "diffusion_unet": vision.diffusion,
    "r3d_18": lambda: (torchvision.models.video.r3d_18(weights=None), (torch.randn(1, 3, 8, 64, 64),)),
    "pointnet": vision.pointnet,
    # Language, speech, sequences, tables.
    "bert": sequences.bert,
    "bert_b8": batch(sequences.bert, 8),
    "gpt2": sequences.gpt2,
    "llama": sequences.llama,
    "decoder_with_cache": sequences.decoder_with_cache,
    "whisper_encoder": sequences.whisper_encoder,
    "wav2vec2": sequences.wav2vec2,
    "lstm": lambda: sequences.recurrent("LSTM"),
    "gru": lambda: sequences.recurrent("GRU"),
    "tcn": sequences.tcn,
    "recommendation": sequences.recommendation,
}


def _lengths(count, batches=False):
    """Sentences of any length, in so many inputs; with batches any number of them, too."""
    length = torch.export.Dim("len", min=2, max=512)
    sizes = {0: torch.export.Dim("batch", min=2, max=64), 1: length} if batches else {1: length}
    return lambda: {"values": tuple(sizes for _ in range(count))}


def _batches():
    return {"x": {0: torch.export.Dim("batch", min=2, max=64)}}


def _frames():
    return {"spectrogram": {2: torch.export.Dim("frames", min=2, max=400)}}


def _sides():
    """Images of any number and size."""
    sides = {2: torch.export.Dim("height", min=64, max=256), 3: torch.export.Dim("width", min=64, max=256)}
    return {"x": {0: torch.export.Dim("batch", min=2, max=64), **sides}}


def _words_before():
    """How many words the caches of keys and values hold."""
    past = torch.export.Dim("past", min=1, max=512)
    return {"words": None, "cache": tuple({2: past} for _ in range(8))}


# Networks with open dimensions: how each is made, and what is open, as torch.onnx.export has it.
OPEN = {
    "bert": (sequences.bert, _lengths(2)),
    "bert_batches": (batch(sequences.bert, 2), _lengths(2, batches=True)),
    "gpt2": (sequences.gpt2, _lengths(1)),
    "llama": (sequences.llama, _lengths(1)),
    "whisper_encoder": (sequences.speech, _frames),
    "decoder_with_cache": (sequences.decoder_with_cache, _words_before),
    "mobilenet_v2": (lambda: (torchvision.models.mobilenet_v2(), (torch.randn(2, 3, 224, 224),)), _batches),
    "resnet18_images": (lambda: (torchvision.models.resnet18(), (torch.randn(2, 3, 128, 160),)), _sides),
}
