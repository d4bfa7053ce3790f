"""Ranks whose executors return answers in right and wrong ways."""

from pathlib import Path

import torch
from _hook_models import drawn, refusal, table
from _returning import RIGHT, WRONG, Returning
from _way_ranks import Bucket
from torch import distributed

from optinc_hw.aggregation import OptincState, optinc_hook
from optinc_hw.aggregation._options import OptincOptions

WAYS = [
    {"shared_memory": True},
    {"shared_memory": False},
    {"bits": 5},
    {"bits": 16},
    {"chip_host": 1},
]
SIZE = 1000


class Dark(Returning):
    """Its receivers see no light."""

    def __init__(self, servers, bits):
        super().__init__("int64", servers, bits)
        self._make = lambda means: 0 * means


def averaged(rank, executor, settings):
    """Mean of the ranks' gradients, or the error."""
    state = OptincState(executor, OptincOptions(**settings))
    bucket = Bucket(drawn(rank, SIZE)[0])
    message = refusal(lambda: optinc_hook(state, bucket).wait())
    state.close()
    return message or bucket.buffer()


def run(rank, ranks, folder):
    """Average with every executor in every way and write what came of it."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    found = []
    for settings in WAYS:
        bits = settings.get("bits", 8)
        found.append({name: averaged(rank, Returning(name, ranks, bits), settings) for name in RIGHT if bits <= 8})
        found[-1]["int64"] = averaged(rank, Returning("int64", ranks, bits), settings)
        found[-1]["wanted"] = averaged(rank, reference(ranks, bits), settings)
        # One rank only answers wrongly: with a chip host it is that one.
        wrong = {
            name: Returning(name, ranks, bits) if rank == 1 else reference(ranks, bits) for name in WRONG
        }  # fmt: skip
        wrong["dark"] = Dark(ranks, bits) if rank == 1 else reference(ranks, bits)
        found[-1] |= {name: averaged(rank, executor, settings) for name, executor in wrong.items()}
    torch.save(found, Path(folder, f"found_{rank}"))
    distributed.destroy_process_group()


def reference(ranks, bits):
    return Returning("int64", ranks, bits) if bits == 16 else table(ranks, bits)
