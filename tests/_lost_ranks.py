"""A rank of a job that loses one of its ranks in step 3; runs in a process of its own."""

import os
import signal
from pathlib import Path

import torch
from _hook_models import Small, batch, refusal, table
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from optinc_hw.aggregation import register_optinc_hook

LOST_IN = 3
TIMEOUT_S = 8.0


def train(rank, ranks, folder, lost, how, options):
    """Train until the job breaks, and write step and message."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    model = DistributedDataParallel(Small(), bucket_cap_mb=0.004)
    holds = options.get("chip_host", rank) == rank
    settings = {"block_size": 64, "timeout_s": TIMEOUT_S, **options}
    state = register_optinc_hook(model, table(ranks) if holds else None, settings)
    for step in range(6):
        if rank == lost and step == LOST_IN:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()  # hangs until the test kills it
        message = refusal(lambda step=step: model(batch(rank, step)).square().mean().backward())
        if message:
            again = refusal(lambda: state.averager.begin(None))
            Path(folder, f"rank_{rank}").write_text(f"{step}\n{message}\n{again}")
            return
