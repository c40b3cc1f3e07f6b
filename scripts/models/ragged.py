# SPDX-License-Identifier: Apache-2.0
"""Encoders on padded batches, with the mask that says what is padding: BERT-base's layers (Devlin et al.) as PyTorch
has them, which computes such batches by nested tensors, without their padding.
"""

import torch
from torch import nn

UNITS, HEADS, HIDDEN = 768, 12, 3072


class Encoder(nn.Module):
    """Layers with normalisation behind, and GELU: [batch, length, 768] and a mask, 0 for padding."""

    def __init__(self, layers):
        super().__init__()
        layer = nn.TransformerEncoderLayer(UNITS, HEADS, HIDDEN, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=True)

    def forward(self, hidden, attention_mask):
        return self.encoder(hidden, src_key_padding_mask=attention_mask == 0)


class Attention(nn.Module):
    """The attention of such a layer alone."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(UNITS, HEADS, batch_first=True)

    def forward(self, hidden, attention_mask):
        return self.attention(hidden, hidden, hidden, key_padding_mask=attention_mask == 0, need_weights=False)[0]


NETWORKS = {
    "attention": Attention,
    "layer": lambda: Encoder(1),
    "bert_base": lambda: Encoder(12),
}


def named(name):
    """The network that a name says, as in layer_8x64 (batch 8, length 64), and inputs for it."""
    network, _, sizes = name.rpartition("_")
    batch, length = map(int, sizes.split("x"))
    return NETWORKS[network](), (torch.randn(batch, length, UNITS), torch.ones(batch, length, dtype=torch.int64))
