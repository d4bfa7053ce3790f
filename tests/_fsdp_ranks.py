"""Ranks that train with FSDP2, whose reduce-scatters share connections and close them."""

from pathlib import Path

import torch
from _hook_models import Small, batch, table, vector
from torch import distributed

from optinc_hw.aggregation import OptincOptions, OptincReduceScatter

OPEN_FILES = Path("/dev/fd")
OPTIONS = OptincOptions(block_size=32)


def open_files():
    distributed.barrier()
    return len(list(OPEN_FILES.iterdir())) if OPEN_FILES.is_dir() else 0


def trained(rank, mesh, scatters):
    """Train a model of four sharded modules, each with a reduce-scatter of its own or with the same one."""
    from torch.distributed.fsdp import fully_shard

    model = Small()
    for part, scatter in zip((model.first, model.middle, model.last, model), scatters, strict=True):
        fully_shard(part, mesh=mesh)
        part.set_custom_reduce_scatter(scatter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(rank, step)).square().mean().backward()
        optimizer.step()
    return vector(parameter.full_tensor() for parameter in model.parameters())


def run(rank, ranks, folder):
    """Train with one reduce-scatter and with four, then make and close ten, and write what was found."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    files = [open_files()]
    several = [OptincReduceScatter(table(ranks), OPTIONS) for _ in range(4)]
    own = trained(rank, mesh, several)
    files.append(open_files())
    for scatter in several:
        scatter.close()
    files.append(open_files())
    one = OptincReduceScatter(table(ranks), OPTIONS)
    shared = trained(rank, mesh, [one] * 4)
    files.append(open_files())
    again = trained(rank, mesh, [one] * 4)
    files.append(open_files())
    one.close()
    files.append(open_files())
    pair = distributed.new_group(list(range(ranks)))
    means = []
    for _ in range(5):
        for group in (distributed.group.WORLD, pair):
            mean = torch.empty(3)
            one(mean, torch.arange(3.0 * ranks) * (rank + 1), group, distributed.ReduceOp.AVG)
            means.append(mean)
        one.close()
        files.append(open_files())
    one.close()  # nothing is open
    torch.save(
        {"own": own, "shared": shared, "again": again, "files": files, "means": means, "calls": one.costs.buckets},
        Path(folder, f"found_{rank}"),
    )
    distributed.destroy_process_group()
