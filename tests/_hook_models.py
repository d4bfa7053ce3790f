"""What the ranks of the hook's tests train, and how they tell errors."""

import pickle

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from optinc_hw.aggregation import ExactExecutor, TableExecutor, register_optinc_hook
from optinc_hw.errors import OptincError


def refusal(act):
    """Return the message of the error that ``act`` ends with, or an empty text."""
    try:
        act()
    except (OptincError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def copied(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


def table(ranks, bits=8):
    return TableExecutor.from_executor(ExactExecutor(ranks, bits))


class Small(nn.Module):
    """Three layers of which the middle one may be left out."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle, self.last = nn.Linear(6, 40), nn.Linear(40, 40), nn.Linear(40, 3)

    def forward(self, inputs, *, whole=True):
        hidden = torch.tanh(self.first(inputs))
        return self.last(torch.tanh(self.middle(hidden)) if whole else hidden)


def batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 6, generator=generator)


def trained(rank, model, steps=range(4), optimizer=None):
    """Train and return the parameters as one vector."""
    chosen = torch.optim.SGD(model.parameters(), lr=0.3) if optimizer is None else optimizer
    for step in steps:
        chosen.zero_grad()
        model(batch(rank, step)).square().mean().backward()
        chosen.step()
    return vector(model.parameters())


def vector(tensors):
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


class Values(nn.Module):
    """Parameters whose gradients are given."""

    def __init__(self, *values):
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.zeros_like(value)) for value in values])
        self.values = values

    def forward(self):
        return sum((part * value).sum().to(torch.float64) for part, value in zip(self.parts, self.values, strict=True))


def averaged(values, executor, options=None, **settings):
    """Gradients of `Values` after the hook."""
    model = DistributedDataParallel(Values(*values), **settings)
    register_optinc_hook(model, executor, options)
    model().backward()
    return [part.grad.clone() for part in model.module.parts]


def drawn(rank, *sizes):
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(size, generator=generator) for size in sizes]
