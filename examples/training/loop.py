"""The training loop: one rank of a DDP job."""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from optinc_hw.aggregation import Costs
from training.averaging import Averaging, InjectedErrors
from training.data import Samples
from training.tasks import Task


@dataclass(frozen=True)
class Outcome:
    """What a training came to; equal on all ranks but for ``costs``.

    Parameters
    ----------
    loss
        Mean cross entropy of the validation part, nat.
    accuracy
        Share of the validation part's targets that the model gives the largest probability.
    digest
        Of the bits of all parameters.
    equal
        Whether all ranks ended with the same bits.
    injected
        Answers made wrong on purpose, of all ranks.
    costs
        What averaging cost this rank; None with plain all-reduce.
    seconds
        Time in s that the steps took.
    """

    loss: float
    accuracy: float
    digest: str
    equal: bool
    injected: int
    costs: Costs | None
    seconds: float


@contextmanager
def process_group() -> Iterator[None]:
    """Join the other processes that torchrun started; without torchrun, be alone."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def train(task: Task, averaging: Averaging, seed: int, steps: int | None = None) -> Outcome:
    """Train on this rank, while the others do the same.

    Parameters
    ----------
    task
        What is trained.
    averaging
        How gradients are averaged.
    seed
        Of initial weights, the order of samples, and errors.  Equal seeds see equal samples in equal order, however
        gradients are averaged.
    steps
        Steps; None: the task's own.
    """
    count = task.steps if steps is None else steps
    torch.manual_seed(seed)
    model = DistributedDataParallel(task.model())
    state = averaging.register(model, seed)
    optimizer = task.optimizer(model.parameters())
    begun = time.perf_counter()
    for inputs, targets in _batches(task, seed, count):
        optimizer.zero_grad()
        _loss(model(inputs), targets).backward()
        optimizer.step()
    seconds = time.perf_counter() - begun
    loss, accuracy = _judged(model.module, task.data.validation)
    digest = _digest(model)
    digests: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(digests, digest)
    injected = state.executor.injected if state and isinstance(state.executor, InjectedErrors) else 0
    total = torch.tensor(injected)
    dist.all_reduce(total)
    costs = None if state is None else state.costs
    return Outcome(loss, accuracy, digest, len(set(digests)) == 1, int(total), costs, seconds)


def _batches(task: Task, seed: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield this rank's samples of each step; all ranks together see every sample once before one comes again."""
    rank, ranks, data = dist.get_rank(), dist.get_world_size(), task.data.training
    together = task.batch * ranks
    if len(data) < together:
        raise ValueError(f"{len(data)} samples are fewer than the {together} of a step of {ranks} ranks")
    rng = np.random.default_rng(seed)
    order = np.empty(0, dtype=np.int64)
    for _ in range(steps):
        if len(order) < together:
            order = rng.permutation(len(data))
        mine, order = order[rank * task.batch : (rank + 1) * task.batch], order[together:]
        places = torch.as_tensor(mine)
        yield data.inputs[places], data.targets[places]


def _loss(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction=reduction)


@torch.no_grad()
def _judged(model: nn.Module, samples: Samples) -> tuple[float, float]:
    """Mean loss and accuracy of all samples, of which every rank takes its share."""
    sums = torch.zeros(3, dtype=torch.float64)
    own = slice(dist.get_rank(), None, dist.get_world_size())
    for inputs, targets in zip(samples.inputs[own].split(128), samples.targets[own].split(128), strict=True):
        logits = model(inputs)
        right = (logits.argmax(dim=-1) == targets).sum()
        sums += torch.stack([_loss(logits, targets, "sum").double(), right.double(), torch.tensor(targets.numel())])
    dist.all_reduce(sums)
    return float(sums[0] / sums[2]), float(sums[1] / sums[2])


def _digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()
