"""A chip host that dies when it is told to, and ranks of a job that use it; each runs in a process of its own."""

import os
import signal
import threading
import warnings
from pathlib import Path

import torch
from _hook_models import Small, batch, refusal, table, trained
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from optinc_hw.aggregation import ChipHost, ExactExecutor, RemoteExecutor, register_optinc_hook

LOST_IN = 3
TIMEOUT_S = 40.0


class MortalExecutor(ExactExecutor):
    """Kills its process in the middle of a request once a file is there."""

    def __init__(self, servers, sign):
        super().__init__(servers, 8)
        self._sign = sign

    def run(self, codes, out=None):
        if self._sign.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(codes, out)


def serve(folder, servers, told):
    """Tell the address and serve until killed."""
    with ChipHost(MortalExecutor(servers, Path(folder, "die"))) as host:
        told.send(host.address)
        threading.Event().wait()


def hooked(executor):
    model = DistributedDataParallel(Small(), bucket_cap_mb=0.004)
    register_optinc_hook(model, executor, {"block_size": 64, "timeout_s": TIMEOUT_S, "chip_host": 0})
    return model


def train(rank, ranks, folder, address):
    """Train with a table and with the host; then have the host die, and write what this rank is told."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*Backend.*")
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    remote = RemoteExecutor(address, timeout_s=20.0, reconnect_s=1.0) if rank == 0 else None
    model = hooked(remote)
    wanted = trained(rank, hooked(table(ranks) if rank == 0 else None), range(LOST_IN))
    equal = torch.equal(trained(rank, model, range(LOST_IN)), wanted)
    distributed.barrier()
    Path(folder, "die").touch()
    message = refusal(lambda: model(batch(rank, LOST_IN)).square().mean().backward())
    Path(folder, f"rank_{rank}").write_text(f"{equal}\n{message}")
