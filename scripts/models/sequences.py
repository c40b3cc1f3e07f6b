# SPDX-License-Identifier: Apache-2.0
"""Networks on words, sounds and tables, in small sizes."""

import torch
import transformers
from torch import nn
from torch.nn import functional


class Named(nn.Module):
    """One output of a network of transformers, whose inputs are given by position."""

    def __init__(self, network, inputs, output):
        super().__init__()
        self.network, self.inputs, self.output = network, inputs, output

    def forward(self, *values):
        return getattr(self.network(**dict(zip(self.inputs, values, strict=True))), self.output)


def bert():
    """An encoder with a mask."""
    config = transformers.BertConfig(
        num_hidden_layers=4, hidden_size=256, num_attention_heads=4, intermediate_size=1024
    )
    network = Named(transformers.BertModel(config), ("input_ids", "attention_mask"), "last_hidden_state")
    return network, (torch.randint(0, 1000, (1, 128)), torch.ones(1, 128, dtype=torch.int64))


def gpt2():
    """A decoder, 64 words at once."""
    config = transformers.GPT2Config(n_layer=4, n_embd=256, n_head=4, use_cache=False)
    return Named(transformers.GPT2LMHeadModel(config), ("input_ids",), "logits"), (torch.randint(0, 1000, (1, 64)),)


def llama():
    """A decoder with rotary positions, RMS normalisation and grouped attention, 64 words at once."""
    config = transformers.LlamaConfig(
        num_hidden_layers=4, hidden_size=256, num_attention_heads=8, num_key_value_heads=2, intermediate_size=688,
        vocab_size=4000, use_cache=False,
    )  # fmt: skip
    return Named(transformers.LlamaForCausalLM(config), ("input_ids",), "logits"), (torch.randint(0, 1000, (1, 64)),)


class Step(nn.Module):
    """One word more: keys and values of the words before are inputs, and with the new ones outputs."""

    def __init__(self, layers=4, width=256, heads=8, words=2000):
        super().__init__()
        self.heads, self.width = heads, width
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)

        def each(make):
            return nn.ModuleList(make() for _ in range(layers))

        self.queries, self.outs = each(lambda: nn.Linear(width, 3 * width)), each(lambda: nn.Linear(width, width))
        self.ups, self.downs = each(lambda: nn.Linear(width, 4 * width)), each(lambda: nn.Linear(4 * width, width))
        self.before, self.between = each(lambda: nn.RMSNorm(width)), each(lambda: nn.RMSNorm(width))

    def split(self, value):
        return value.view(value.shape[0], -1, self.heads, self.width // self.heads).transpose(1, 2)

    def forward(self, words, *cache):
        x, kept = self.words(words), []
        for i in range(len(self.queries)):
            query, key, value = (self.split(one) for one in self.queries[i](self.before[i](x)).chunk(3, -1))
            key, value = torch.cat([cache[2 * i], key], 2), torch.cat([cache[2 * i + 1], value], 2)
            kept += [key, value]
            seen = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(x.shape)
            x = x + self.outs[i](seen)
            x = x + self.downs[i](functional.silu(self.ups[i](self.between[i](x))))
        return (self.head(x), *kept)


def decoder_with_cache():
    """A decoder's step with its cache of keys and values as inputs."""
    return Step(), (torch.randint(0, 2000, (1, 1)), *[torch.randn(1, 8, 32, 32) for _ in range(8)])


def whisper_encoder():
    """Convolutions and attention over a spectrogram."""
    config = transformers.WhisperConfig(
        encoder_layers=2, d_model=256, encoder_attention_heads=4, encoder_ffn_dim=1024, decoder_layers=1,
        decoder_attention_heads=4, decoder_ffn_dim=512, max_source_positions=200, num_mel_bins=80,
    )  # fmt: skip
    encoder = transformers.WhisperModel(config).encoder
    return Named(encoder, ("input_features",), "last_hidden_state"), (torch.randn(1, 80, 400),)


class Speech(nn.Module):
    """Whisper's encoder on a spectrogram of any length: transformers' own asks for thirty seconds."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, spectrogram):
        parts = self.encoder
        x = functional.gelu(parts.conv2(functional.gelu(parts.conv1(spectrogram)))).transpose(1, 2)
        x = x + parts.embed_positions.weight[: x.shape[1]]
        for layer in parts.layers:
            x = layer(x, None)
            x = x[0] if isinstance(x, tuple) else x
        return parts.layer_norm(x)


def speech():
    """A Whisper-like encoder for spectrograms of 2 to 400 frames."""
    named, example = whisper_encoder()
    return Speech(named.network), example


def wav2vec2():
    """Convolutions over a wave, group normalisation, positions by a convolution."""
    config = transformers.Wav2Vec2Config(
        num_hidden_layers=2, hidden_size=128, num_attention_heads=4, intermediate_size=256,
        conv_dim=(64, 64, 64), conv_stride=(5, 4, 4), conv_kernel=(10, 8, 4),
    )  # fmt: skip
    return Named(transformers.Wav2Vec2Model(config), ("input_values",), "last_hidden_state"), (torch.randn(1, 4000),)


class Recurrent(nn.Module):
    """Two layers of a recurrent network, and what the last step says."""

    def __init__(self, kind):
        super().__init__()
        self.steps, self.head = getattr(nn, kind)(64, 128, 2, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.steps(x)[0][:, -1])


def recurrent(kind):
    """LSTM or GRU, 20 steps."""
    return Recurrent(kind), (torch.randn(1, 20, 64),)


class Temporal(nn.Module):
    """Convolutions that see what was before, each twice as far as the last."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.ConstantPad1d((2 * 2**i, 0), 0.0), nn.Conv1d(64, 64, 3, dilation=2**i), nn.BatchNorm1d(64), nn.ReLU()
            )
            for i in range(6)
        )
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x.mean(-1))


def tcn():
    """A temporal convolutional network."""
    return Temporal(), (torch.randn(1, 64, 128),)


class Recommendation(nn.Module):
    """Numbers and categories: embeddings, products of all pairs, a small network on top."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, 16) for size in (1000, 500, 200, 50))
        self.numbers = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(26, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())

    def forward(self, numbers, categories):
        rows = [self.numbers(numbers)] + [table(categories[:, i]) for i, table in enumerate(self.tables)]
        all_ = torch.stack(rows, 1)
        products = all_ @ all_.transpose(1, 2)
        first, second = torch.tril_indices(5, 5, -1)
        return self.top(torch.cat([all_[:, 0], products[:, first, second]], 1))


def recommendation():
    """Eight users at once."""
    return Recommendation(), (torch.randn(8, 13), torch.randint(0, 50, (8, 4)))
