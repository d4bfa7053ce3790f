"""A rank of a job that loses one of its ranks in step 3; runs in a process of its own."""

import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from _hook_models import Small, batch, refusal, table
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import optinc_hw.bench._simulate as simulate
from optinc_hw import Bench
from optinc_hw.aggregation import BenchExecutor, register_optinc_hook
from optinc_hw.bench import BenchTileRunner
from optinc_hw.onn import build_exact
from optinc_hw.photonics import TwinParameters
from simulated_instruments import HeaterTrace

LOST_IN = 3
TIMEOUT_S = 8.0
BENCH_TIMEOUT_S = 60.0  # a step on the bench takes longer
BITS = 4


def take_part(rank, lost, how, step):
    """End or stop this rank if it is the one to be lost."""
    if rank == lost and step == LOST_IN:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()  # hangs until the test kills it


def train(rank, ranks, folder, lost, how, options):
    """Train until the job breaks, and write step and message."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    model = DistributedDataParallel(Small(), bucket_cap_mb=0.004)
    holds = options.get("chip_host", rank) == rank
    settings = {"block_size": 64, "timeout_s": TIMEOUT_S, **options}
    state = register_optinc_hook(model, table(ranks) if holds else None, settings)
    for step in range(6):
        take_part(rank, lost, how, step)
        message = refusal(lambda step=step: model(batch(rank, step)).square().mean().backward())
        if message:
            again = refusal(lambda: state.averager.begin(None))
            Path(folder, f"rank_{rank}").write_text(f"{step}\n{message}\n{again}")
            return


@contextmanager
def bench_executor(folder, ranks) -> Iterator[BenchExecutor]:
    """Open a simulated bench without a calibration; each voltage of its chip is written to a file."""
    make, traces = simulate._hidden_chip, []

    def watched(*arguments):
        chip = make(*arguments)
        traces.append(HeaterTrace(chip, Path(folder, "trace.csv")))
        return chip

    simulate._hidden_chip = watched
    with Bench.simulated(4, 0) as bench:
        Path(folder, "heaters").write_text("\n".join(bench.layout.heaters))
        twin = TwinParameters.nominal(4, input_amplitude=0.03, lo_amplitude=0.02)
        yield BenchExecutor(build_exact(ranks, BITS), BenchTileRunner(bench, twin), excess=math.inf)


def train_on_bench(rank, ranks, folder, lost, how):
    """Train a small model through the bench of rank 0, which ends by the error of the lost rank."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    settings = {"bits": BITS, "block_size": 64, "timeout_s": BENCH_TIMEOUT_S, "chip_host": 0}
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(6, 1))
    with bench_executor(folder, ranks) if rank == 0 else nullcontext() as executor:
        register_optinc_hook(model, executor, settings)
        for step in range(6):
            take_part(rank, lost, how, step)
            model(batch(rank, step)).square().mean().backward()
            Path(folder, f"steps_{rank}").write_text(f"{step + 1}")
