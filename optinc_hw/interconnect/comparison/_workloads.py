"""Models that are trained: parameters, and arithmetic for a sample."""

import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect.comparison import _convolutions as convolutions

if TYPE_CHECKING:
    from torch import nn

_PASSES = 3  # the backward pass computes as much as two forward passes


@dataclass(frozen=True)
class Workload:
    """A model in training.

    Parameters
    ----------
    name
        For tables.
    parameters
        Trained numbers, each with a gradient.
    flops_per_sample
        Additions and multiplications of a forward and a backward pass for one sample.
    sample
        What a sample is: ``"image"`` or ``"token"``.
    """

    name: str
    parameters: int
    flops_per_sample: float
    sample: str = "image"

    def __post_init__(self) -> None:
        if self.parameters < 1 or not 0.0 < self.flops_per_sample < math.inf:
            raise ComparisonError(
                f"{self.name} must have parameters and FLOPs, got {self.parameters} and {self.flops_per_sample!r}"
            )


def _network(name: str, count: convolutions.Counter) -> Workload:
    return Workload(name, count.parameters, 2.0 * _PASSES * count.macs)


def transformer(name: str, parameters: int) -> Workload:
    """Build a workload of 6 FLOPs a parameter and token (Kaplan et al. 2020; attention over the context left out)."""
    return Workload(name, parameters, 2.0 * _PASSES * parameters, "token")


def _llama(layers: int, width: int, hidden: int, vocabulary: int = 32000) -> int:
    """Parameters of a LLaMA: input and output tables apart, gated feed-forward layers, no biases."""
    return 2 * vocabulary * width + layers * (4 * width**2 + 3 * width * hidden + 2 * width) + width


def _encoder(layers: int, width: int) -> int:
    """Parameters of layers with attention, four times as wide feed-forward layers, biases and two norms."""
    return layers * (12 * width**2 + 13 * width)


@cache
def workloads() -> Mapping[str, Workload]:
    """Return the built-in models by name.

    Counts are made from the published layers: convolutional networks as torchvision has them; ``resnet50-32`` and
    ``resnet50-cifar`` are for images of 32 pixels in 100 classes, with the stem of ImageNet or of CIFAR;
    ``llama-8x384`` is the OptINC paper's (8 layers of 384; hidden 1024, tables for 32 000 tokens are our
    reconstruction).
    """
    bert = (30522 + 512 + 2 + 2) * 1024 + _encoder(24, 1024) + 1024 * 1025
    gpt2, gpt2_xl = ((50257 + 1024 + 2) * width + _encoder(layers, width) for layers, width in ((12, 768), (48, 1600)))
    made = (
        _network("resnet50", convolutions.resnet50()),
        _network("resnet50-32", convolutions.resnet50(32, 100)),
        _network("resnet50-cifar", convolutions.resnet50(32, 100, cifar_stem=True)),
        _network("vgg16", convolutions.vgg((2, 2, 3, 3, 3))),
        _network("vgg19", convolutions.vgg((2, 2, 4, 4, 4))),
        _network("alexnet", convolutions.alexnet()),
        _network("googlenet", convolutions.googlenet()),
        transformer("bert-large", bert),
        transformer("gpt2", gpt2),
        transformer("gpt2-xl", gpt2_xl),
        transformer("llama-8x384", _llama(8, 384, 1024)),
        transformer("llama-7b", _llama(32, 4096, 11008)),
    )
    return {workload.name: workload for workload in made}


def find_workload(name: str) -> Workload:
    """Return a built-in model.

    Raises
    ------
    ComparisonError
        If there is none of that name.
    """
    found = workloads().get(name)
    if found is None:
        raise ComparisonError(f"no model {name!r} is built in; there are {', '.join(workloads())}")
    return found


def count_parameters(module: "nn.Module") -> int:
    """Return how many numbers of a torch module are trained; shared ones count once."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def measure_workload(name: str, module: "nn.Module", inputs: Any) -> Workload:
    """Count parameters and FLOPs of a torch module by running it once, forward and backward.

    Parameters
    ----------
    name
        For tables.
    module
        Returns a tensor, or a tuple, list or mapping whose first entry is one.  Its gradients stay as they are; running
        statistics change as in any forward pass.
    inputs
        A tensor, or a tuple of arguments; the first dimension of the first is the batch.

    Raises
    ------
    ComparisonError
        If the first input is no tensor of samples, nothing is trained, or the module returns something else.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    first = _first(arguments)
    if not isinstance(first, torch.Tensor) or first.ndim == 0 or len(first) == 0:
        raise ComparisonError(
            f"inputs of {name} must be a tensor of one sample or more, or a tuple of arguments that begins with one, "
            f"got {_described(inputs)}"
        )
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        raise ComparisonError(f"no parameter of {name} requires a gradient: nothing is trained; unfreeze it")
    with torch.enable_grad(), FlopCounterMode(display=False) as counter:
        answer = module(*arguments)
        found = answer
        while isinstance(found, (tuple, list, Mapping)) and found:
            found = _first(found)
        if not isinstance(found, torch.Tensor) or not found.requires_grad:
            raise ComparisonError(
                f"{name} must return a tensor that depends on what is trained, or a tuple, list or mapping whose first "
                f"entry is one, got {_described(answer)}"
            )
        torch.autograd.grad(found, trained, torch.ones_like(found), allow_unused=True)
    return Workload(name, count_parameters(module), counter.get_total_flops() / len(first), "sample")


def _first(entries: Any) -> Any:
    """Return the first entry of a tuple, list or mapping; ``None`` if it is empty."""
    return next(iter(entries.values() if isinstance(entries, Mapping) else entries), None)


def _described(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def load_module(path: str) -> tuple["nn.Module", Any]:
    """Call ``package.module:factory``, which returns a torch module, or one and inputs for it.

    Returns
    -------
    tuple
        The module and its inputs, which are ``None`` if the factory gives none.

    Raises
    ------
    ComparisonError
        If there is no such factory, it asks for arguments, or it returns something else.
    """
    from torch import nn

    place, _, name = path.partition(":")
    try:
        factory: Callable[[], Any] = getattr(importlib.import_module(place), name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ComparisonError(f"no factory {path!r} ({error}); name one as package.module:function") from error
    try:
        inspect.signature(factory).bind()
    except (TypeError, ValueError) as error:
        raise ComparisonError(f"{path} must be a function that takes no arguments ({error})") from error
    made = factory()
    module, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, nn.Module):
        raise ComparisonError(f"{path} must return a torch module, or a module and inputs, got a {type(made).__name__}")
    return module, inputs
