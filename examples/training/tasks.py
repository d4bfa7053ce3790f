"""Tasks: a model, its data and how it is trained."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from training.data import Split, digits
from training.models import LanguageModel, ResNet, perceptron


@dataclass(frozen=True)
class Task:
    """What is trained.

    Parameters
    ----------
    name
        Name in tables.
    data
        Samples.
    model
        Makes the model, of torch's random numbers.
    optimizer
        Makes the optimiser of the model's parameters.
    batch
        Samples that a rank takes in a step.
    steps
        Steps of a whole training.
    """

    name: str
    data: Split
    model: Callable[[], nn.Module]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    batch: int
    steps: int


def digits_perceptron() -> Task:
    """Digits with a perceptron of 4810 parameters."""
    optimizer = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    return Task("digits, MLP", digits(), partial(perceptron, 64, 64, 10), optimizer, 32, 600)


def digits_resnet() -> Task:
    """Digits with a residual network of 78 000 parameters."""
    return images_resnet("digits, ResNet", digits(), classes=10, steps=150)


def images_resnet(name: str, data: Split, *, classes: int, steps: int, width: int = 16) -> Task:
    """Images of any size with a residual network."""
    channels = data.training.inputs.shape[1]
    optimizer = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
    return Task(name, data, partial(ResNet, channels, classes, width), optimizer, 32, steps)


def language_model(name: str, data: Split, *, steps: int = 300) -> Task:
    """Text with a language model of 255 000 parameters."""
    return Task(name, data, LanguageModel, partial(torch.optim.AdamW, lr=3e-3), 8, steps)
