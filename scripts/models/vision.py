# SPDX-License-Identifier: Apache-2.0
"""Networks on images, and on points, that no package has ready in a small size."""

import torch
import torchvision
from torch import nn
from torch.nn import functional


class Named(nn.Module):
    """One of the outputs that a network gives by name."""

    def __init__(self, network, name):
        super().__init__()
        self.network, self.name = network, name

    def forward(self, image):
        return self.network(image)[self.name]


def deeplab():
    """Segmentation with atrous convolutions."""
    make = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large
    return Named(make(weights=None, weights_backbone=None), "out"), (torch.randn(1, 3, 224, 224),)


def lraspp():
    """Segmentation on two levels."""
    make = torchvision.models.segmentation.lraspp_mobilenet_v3_large
    return Named(make(weights=None, weights_backbone=None), "out"), (torch.randn(1, 3, 224, 224),)


class Detector(nn.Module):
    """One stage: a pyramid of two levels, a head for both, boxes decoded; suppression is left to others."""

    def __init__(self):
        super().__init__()
        body = torchvision.models.resnet18(weights=None)
        self.stem = nn.Sequential(body.conv1, body.bn1, body.relu, body.maxpool, body.layer1, body.layer2)
        self.level4, self.level5 = body.layer3, body.layer4
        self.narrow4, self.narrow5 = nn.Conv2d(256, 64, 1), nn.Conv2d(512, 64, 1)
        self.head = nn.Conv2d(64, 85, 3, padding=1)

    def forward(self, image):
        fourth = self.level4(self.stem(image))
        fifth = self.level5(fourth)
        small = self.narrow5(fifth)
        large = self.narrow4(fourth) + functional.interpolate(small, size=fourth.shape[-2:], mode="nearest")
        boxes = torch.cat([self.head(level).flatten(2).transpose(1, 2) for level in (large, small)], 1)
        return torch.cat([boxes[..., :2].sigmoid() * 2, boxes[..., 2:4].exp(), boxes[..., 4:].sigmoid()], -1)


def detector():
    """A one-stage detector."""
    return Detector(), (torch.randn(1, 3, 256, 256),)


def espcn():
    """Super-resolution by three."""
    network = nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
        nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3),
    )  # fmt: skip
    return network, (torch.randn(1, 1, 96, 96),)


def gan():
    """A generator with transposed convolutions, instance normalisation and bilinear upsampling."""
    network = nn.Sequential(
        nn.ConvTranspose2d(100, 256, 4), nn.BatchNorm2d(256), nn.ReLU(),
        nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.InstanceNorm2d(128, affine=True), nn.LeakyReLU(0.2),
        nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(128, 3, 3, padding=1), nn.Tanh(),
    )  # fmt: skip
    return network, (torch.randn(1, 100, 1, 1),)


class Diffusion(nn.Module):
    """A U-Net's two levels as diffusion models have them: time embedding, group normalisation, attention."""

    def __init__(self, width=64):
        super().__init__()
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
        self.down, self.norm = nn.Conv2d(width, 2 * width, 3, 2, 1), nn.GroupNorm(8, 2 * width)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.leave = nn.Sequential(nn.GroupNorm(8, 2 * width), nn.SiLU(), nn.Conv2d(2 * width, 4, 3, padding=1))

    def forward(self, image, step):
        angles = step[:, None] * torch.exp(torch.arange(16) * -0.5)
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        first = self.enter(image) + time[:, :, None, None]
        second = functional.silu(self.norm(self.down(first)))
        batch, channels, rows, columns = second.shape
        tokens = second.flatten(2).transpose(1, 2)
        tokens = tokens + self.attention(tokens, tokens, tokens)[0]
        second = tokens.transpose(1, 2).reshape(batch, channels, rows, columns)
        return self.leave(torch.cat([self.up(second), first], 1))


def diffusion():
    """A small U-Net of a diffusion model."""
    return Diffusion(), (torch.randn(1, 4, 32, 32), torch.rand(1) * 100)


class PointNet(nn.Module):
    """Points one by one, then the greatest of each feature."""

    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(
            nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 128, 1), nn.BatchNorm1d(128), nn.ReLU(),
            nn.Conv1d(128, 512, 1),
        )  # fmt: skip
        self.all = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 40))

    def forward(self, points):
        return self.all(self.each(points).max(2)[0])


def pointnet():
    """Classification of point clouds."""
    return PointNet(), (torch.randn(2, 3, 1024),)
