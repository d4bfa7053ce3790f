"""Ranks of the schedules' tests: every schedule on groups of every size of one set of processes."""

import warnings
from pathlib import Path

import torch
from torch import distributed

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect import (
    Crossbar,
    WdmRing,
    binary_tree,
    halving_doubling,
    hierarchical_ring,
    in_switch,
    oddl,
    optinc,
    recursive_doubling,
    ring,
    run_schedule,
    wrht,
)

RANKS = 8
SCHEDULES = {
    "ring": ring,
    "H-ring": lambda n: hierarchical_ring(n, min(3, n)),
    "H-ring slices": lambda n: hierarchical_ring(n, min(3, n), WdmRing(1), inter="slices"),
    "binary tree": binary_tree,
    "recursive doubling": recursive_doubling,
    "recursive doubling, one wavelength": lambda n: recursive_doubling(n, WdmRing(1)),
    "halving-doubling": lambda n: halving_doubling(n, Crossbar()),
    "WRHT, one wavelength": lambda n: wrht(n, 1, reach=2),
    "WRHT, exchange": lambda n: wrht(n, 8, group=2),
    "WRHT, all to all": lambda n: wrht(n, 8),
    "ODDL": oddl,
    "ODDL ring": lambda n: oddl(n, collective="ring"),
    "in-switch": in_switch,
    "in-switch levels": lambda n: in_switch(n, 2),
    "OptINC": optinc,
    "OptINC cascade": lambda n: optinc(n, 4),
}


def run(rank, ranks, folder):
    """Join the others and sum by every schedule, on the first 2, 3, ... ranks."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    groups = {size: distributed.new_group(list(range(ranks - size, ranks))) for size in range(2, ranks + 1)}
    try:
        found = {
            (name, size): _sums(build(size), rank, group)
            for size, group in groups.items()
            if rank >= ranks - size
            for name, build in SCHEDULES.items()
        }
        found["refused"] = _refusals()
        torch.save(found, Path(folder, f"sums_{rank}"))
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def _sums(schedule, rank, group):
    """By the schedule and by all_reduce: integers in columns, so many that they wrap, fewer than chunks, and floats."""
    generator = torch.Generator().manual_seed(rank)
    values = {
        "integers": torch.randint(-(2**62), 2**62, (5, 23), generator=generator).t(),
        "few": torch.randint(0, 256, (3,), generator=generator, dtype=torch.uint8),
        "floats": torch.randn(101, generator=generator),
    }
    pairs = {}
    for name, value in values.items():
        expected = value.clone().contiguous()
        run_schedule(schedule, value, group)
        distributed.all_reduce(expected, group=group)
        pairs[name] = value, expected
    return pairs


def _refusals():
    messages = []
    for schedule, value in ((ring(3), torch.ones(4)), (ring(RANKS), torch.eye(4).to_sparse())):
        try:
            run_schedule(schedule, value)
        except ScheduleError as error:
            messages.append(str(error))
    return messages
