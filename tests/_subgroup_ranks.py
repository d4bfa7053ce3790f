"""Ranks of the tests of hooks on parts of a job, and of ranks that do not come or differ in the warm-up."""

import os
from pathlib import Path

import torch
from _hook_models import Values, drawn, refusal, table, vector
from _way_ranks import Bucket
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from optinc_hw.aggregation import OptincOptions, OptincState, optinc_hook, register_optinc_hook

GROUPS = {"all": (0, 1, 2), "first": (0, 1), "second": (1, 2), "first again": (0, 1), "turned": (2, 0)}
"""Rank 1 is in three groups of two, rank 2 in two, so that they count different numbers of groups."""


def together(rank, ranks):
    """Three steps of a hook on each group, all closed after each step; then the process group ends first."""
    hooks = {}
    for name, members in GROUPS.items():
        group = distributed.new_group(list(members))
        if rank in members:
            model = DistributedDataParallel(Values(*drawn(rank, 300, 70)), process_group=group)
            options = {"block_size": 64, "timeout_s": 60.0}
            hooks[name] = model, register_optinc_hook(model, table(len(members)), options, process_group=group)
    seen = {name: [] for name in hooks}
    for step in range(3):
        for name, (model, state) in hooks.items():
            model.zero_grad()
            model().backward()
            seen[name].append(vector(part.grad for part in model.module.parts))
            if step != 2:
                state.close()
    distributed.barrier()
    distributed.destroy_process_group()
    return {"seen": seen, "closed": [refusal(state.close) for _, state in hooks.values()]}


def absent(rank, ranks):
    """Rank 1 leaves out the first step, in the other group the step after `close`."""
    groups = {name: distributed.new_group([0, 1]) for name in ("first", "after close")}
    if rank == 2:
        return {}
    found = {}
    for before, (name, group) in enumerate(groups.items()):
        state = OptincState(table(2), OptincOptions(timeout_s=6.0), process_group=group)
        for _ in range(before):
            optinc_hook(state, Bucket(torch.ones(50))).wait()
            state.close()
        found[name] = "" if rank == 1 else refusal(lambda state=state: optinc_hook(state, Bucket(torch.ones(50))))
        distributed.barrier(group)
    return found


def warm_up(rank, ranks):
    """Ranks that differ in the warm-up, or in what counts only after it."""
    own = {"steps": {"warmup_steps": rank}, "blocks": {"warmup_steps": 3, "block_size": 64 if rank else 32}}
    found = {}
    for name, options in own.items():
        model = DistributedDataParallel(Values(*drawn(rank, 50)))
        register_optinc_hook(model, table(ranks), options)
        found[name] = refusal(lambda model=model: model().backward())
    return found


def run(rank, ranks, folder, name):
    """Join the others, run the named function and write what it returns."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    torch.save(globals()[name](rank, ranks), Path(folder, f"found_{rank}"))
    os._exit(0)  # a rank that hangs on old connections must not keep the test from telling so
