"""Ranks of the tests of how codes travel: gradients averaged over sockets and through memory, with and without luck."""

import errno
import os
import signal
from pathlib import Path

import pytest
import torch
from _hook_models import drawn, table
from torch import distributed

from optinc_hw.aggregation import ExactExecutor, OptincState, optinc_hook
from optinc_hw.aggregation import _common_memory as common_memory
from optinc_hw.aggregation._options import OptincOptions

SETTINGS = {
    "shares": {},
    "five bits": {"bits": 5},
    "sixteen bits": {"bits": 16},
    "chip host": {"chip_host": 1},
    "error feedback": {"error_feedback": True, "bits": 4},
}
SIZES = (12_000, 500, 90_001, 12_000)
"""The third is larger than what was shared for the first."""


class Bucket:
    """What DDP hands to a hook: one parameter's gradient."""

    def __init__(self, gradient):
        self._gradient, self._parameters = gradient, [torch.nn.Parameter(gradient)]

    def buffer(self):
        return self._gradient

    def gradients(self):
        return [self._gradient]

    def parameters(self):
        return self._parameters

    def is_last(self):
        return True


def averaged(rank, ranks, settings):
    """Means of buckets of several sizes, two at a time, and what they cost."""
    options = OptincOptions(**settings)
    holds = options.chip_host in (None, rank)
    executor = (ExactExecutor(ranks, 16) if options.bits == 16 else table(ranks, options.bits)) if holds else None
    state = OptincState(executor, options)
    buckets = [Bucket(gradient) for gradient in drawn(rank, *SIZES)]
    for pair in (buckets[:2], buckets[2:]):
        for future in [optinc_hook(state, bucket) for bucket in pair]:
            future.wait()
    costs = state.costs
    state.close()
    return [bucket.buffer() for bucket in buckets], costs


def run(rank, ranks, folder):
    """Average in all ways and write what came of it."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    found = {}
    try:
        for name, settings in SETTINGS.items():
            found[name] = [averaged(rank, ranks, {**settings, "shared_memory": shared}) for shared in (True, False)]
        with pytest.MonkeyPatch.context() as patch:
            if rank == 1:  # as on another machine
                patch.setattr(common_memory, "_PROCESSES", Path(folder))
            found["another machine"] = [averaged(rank, ranks, {})]
        with pytest.MonkeyPatch.context() as patch:
            if rank == 1:  # its process has the same number as another one here
                patch.setattr(common_memory, "_PROCESSES", OtherProcesses())
            found["other process numbers"] = [averaged(rank, ranks, {})]
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(os, "memfd_create")
            found["no such memory"] = [averaged(rank, ranks, {})]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "posix_fallocate", full)
            found["no memory left"] = [averaged(rank, ranks, {})]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "posix_fallocate", full_after(2, os.posix_fallocate))
            found["memory used up later"] = [averaged(rank, ranks, {})]
        torch.save(found, Path(folder, f"found_{rank}"))
    finally:
        distributed.destroy_process_group()


class OtherProcesses:
    """Where the first rank's descriptors would be is memory of the same name and size, with other content."""

    def __truediv__(self, place):
        other = os.memfd_create("optinc")
        os.truncate(other, Path("/proc", place).stat().st_size)
        return Path(f"/proc/self/fd/{other}")


def full(descriptor, offset, size):
    raise OSError(errno.ENOSPC, "No space left on device")


def killed(folder):
    """Be killed while memory has been made and no other rank has it yet."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/alone", rank=0, world_size=1)
    allocate = os.posix_fallocate

    def allocate_and_die(*arguments):
        allocate(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    os.posix_fallocate = allocate_and_die
    common_memory.CommonMemory.shared(distributed.group.WORLD, 10_000)


def full_after(times, allocate):
    """Let the first calls pass: one for each lane."""
    calls = iter(range(times))
    return lambda *arguments: full(*arguments) if next(calls, None) is None else allocate(*arguments)
