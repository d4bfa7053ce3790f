"""Ranks of the training examples' tests: one process group, on which several trainings run one after the other."""

import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from optinc_hw.aggregation import ExactExecutor, OptincOptions, TableExecutor, register_optinc_hook

sys.path.append(str(Path(__file__).parents[1] / "examples"))

from training import TABLE_II, Averaging, digits_perceptron, train


def run(rank, ranks, folder):
    """Join the others and write what the trainings and the gradients came to."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    try:
        found = {"trained": trained(ranks), "gradients": gradients(rank, ranks)}
        torch.save(found, Path(folder, f"found_{rank}"))
    finally:
        distributed.destroy_process_group()


def trained(ranks):
    """Twelve steps of the perceptron, averaged in several ways."""
    task = digits_perceptron()
    sixteen = OptincOptions(bits=16)
    ways = {
        "float": Averaging("float"),
        "exact": Averaging("exact"),
        "table": Averaging("table"),
        "wrong twin": Averaging("twin", answers=wrong_answers(ranks)),
        "sixteen bits": Averaging("exact", sixteen),
        "injected": Averaging("exact", sixteen, TABLE_II["3-6"]),
    }
    outcomes = {way: train(task, averaging, 0, 12) for way, averaging in ways.items()}
    return outcomes | {
        "again": train(task, ways["injected"], 0, 12), "other seed": train(task, ways["injected"], 1, 12),
        "untrained": train(task, ways["float"], 0, 0),
    }  # fmt: skip


def wrong_answers(ranks):
    """A table that answers everything with the code of the largest value, as a broken chip might."""
    exact = TableExecutor.from_executor(ExactExecutor(ranks))
    return torch.full((exact.space.size,), 255).numpy()


class Values(nn.Module):
    """A parameter whose gradient is given."""

    def __init__(self, value):
        super().__init__()
        self.part, self.value = nn.Parameter(torch.zeros_like(value)), value

    def forward(self):
        return (self.part * self.value).sum()


def gradients(rank, ranks):
    """Zeros on all ranks by way of an executor that never answers zero; a rank whose gradient is far larger."""
    size = {"zeros": torch.zeros(130), "scales": torch.linspace(-1.0, 1.0, 130) * (1000.0 if rank == 1 else 1.0)}
    executors = {"zeros": Averaging("twin", answers=wrong_answers(ranks)).executor(ranks, rank, 0)}
    found = {}
    for name, value in size.items():
        model = DistributedDataParallel(Values(value))
        register_optinc_hook(model, executors.get(name, ExactExecutor(ranks)), {"block_size": 50})
        model().backward()
        found[name] = model.module.part.grad.clone()
    return found
