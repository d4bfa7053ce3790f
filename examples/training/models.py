"""Models: a perceptron, a residual network, and a language model in the manner of LLaMA."""

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 256
"""Values of a byte."""


def perceptron(inputs: int, hidden: int, classes: int) -> nn.Sequential:
    """Make one hidden layer with ReLU."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


class _Residual(nn.Module):
    """Two convolutions beside a shortcut.

    Groups, not batches, are normalised, so that no rank has statistics of its own.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.GroupNorm(4, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.GroupNorm(4, outputs),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.body(images) + self.shortcut(images))


class ResNet(nn.Module):
    """A small residual network: three stages of one block, each of the later two halves rows and columns.

    Parameters
    ----------
    channels
        Channels of an image.
    classes
        Classes.
    width
        Channels of the first stage, a multiple of 4.
    """

    def __init__(self, channels: int, classes: int, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.stages = nn.Sequential(
            _Residual(width, width, 1), _Residual(width, 2 * width, 2), _Residual(2 * width, 4 * width, 2)
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (batch, classes) for images (batch, channels, rows, columns)."""
        return self.head(self.stages(self.stem(images)).mean(dim=(2, 3)))


def rotary_angles(length: int, size: int) -> Tensor:
    """Return the angles (length, size / 2) in rad by which rotary embeddings turn pairs of features."""
    rates = 10_000.0 ** (-torch.arange(0, size, 2) / size)
    return torch.outer(torch.arange(length), rates)


def rotate(features: Tensor, angles: Tensor) -> Tensor:
    """Turn pairs of features (..., length, size) by their place's angles."""
    first, second = features.chunk(2, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inner = nn.Linear(width, 3 * width, bias=False)
        self.outer = nn.Linear(width, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.inner(hidden).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        angles = rotary_angles(length, width // self.heads)
        queries, keys, values = rotate(parts[0], angles), rotate(parts[1], angles), parts[2]
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.outer(mixed.transpose(1, 2).reshape(batch, length, width))


class _SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(hidden)) * self.up(hidden))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(width, eps=1e-5), _Attention(width, heads)
        self.feed_norm, self.feed = nn.RMSNorm(width, eps=1e-5), _SwiGLU(width, hidden)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.feed(self.feed_norm(hidden))


class LanguageModel(nn.Module):
    """A language model of bytes in the manner of LLaMA: RMSNorm, rotary embeddings, SwiGLU, causal attention.

    Parameters
    ----------
    width
        Features of a byte.
    layers
        Blocks of attention and feed-forward network.
    heads
        Heads of attention.
    hidden
        Features inside the feed-forward network.
    """

    def __init__(self, width: int = 96, layers: int = 2, heads: int = 4, hidden: int = 272) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.Sequential(*(_Block(width, heads, hidden) for _ in range(layers)))
        self.norm = nn.RMSNorm(width, eps=1e-5)

    def forward(self, text: Tensor) -> Tensor:
        """Return logits (batch, length, 256) of the next byte for bytes (batch, length)."""
        hidden = self.norm(self.blocks(self.embedding(text)))
        return functional.linear(hidden, self.embedding.weight)
