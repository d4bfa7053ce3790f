"""Ranks of the hook's tests: each function here runs on every rank of one process group and returns what it found."""

import contextlib
import warnings
from pathlib import Path

import numpy as np
import torch
from _hook_models import (
    Small,
    Values,
    averaged,
    batch,
    copied,
    drawn,
    gradients,
    refusal,
    table,
    trained,
    vector,
)  # fmt: skip
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from optinc_hw.aggregation import (
    ExactExecutor,
    OptincOptions,
    OptincReduceScatter,
    OptincState,
    optinc_hook,
    register_optinc_hook,
)
from optinc_hw.errors import OptincError

OPEN_FILES = Path("/dev/fd")


def run(rank, ranks, folder, names):
    """Join the others, run the named functions one after the other and write what they return."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=".*Backend.*")
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    try:
        for name in names:
            torch.save(globals()[name](rank, ranks), Path(folder, f"{name}_{rank}"))
    finally:
        distributed.destroy_process_group()


def means(rank, ranks):
    """Means of float32 gradients under several settings."""
    values = drawn(rank, 300, 5, 1000)
    stochastic = {"rounding": "stochastic", "bits": 4, "seed": 3}
    return {
        "plain": averaged(values, table(ranks), {"block_size": 64}),
        "ten bits": averaged(values, ExactExecutor(ranks, 10), {"bits": 10}),
        "three bits": averaged(values, table(ranks, 3), {"bits": 3, "block_size": 50}),
        "host": averaged(values, table(ranks) if rank == 1 else None, {"block_size": 64, "chip_host": 1}),
        "spare inputs": averaged(values, table(ranks + 1), {"block_size": 64}),
        "twice the inputs": averaged(values, table(2 * ranks), {"block_size": 64}),
        "stochastic": averaged(values, table(ranks, 4), stochastic),
        "stochastic, small buckets": averaged(values, table(ranks, 4), stochastic, bucket_cap_mb=1e-3),
    }


def bucket_sizes(rank, ranks):
    """Training with buckets of several sizes, views or copies; and twice the same."""
    found = {}
    for cap in (25, 0.004, 0.001):
        for view in (True, False):
            model = DistributedDataParallel(Small(), bucket_cap_mb=cap, gradient_as_bucket_view=view)
            register_optinc_hook(model, table(ranks), OptincOptions(block_size=64, error_feedback=True))
            found[cap, view] = trained(rank, model, range(20))
    return found


def types(rank, ranks):
    """Gradients of every type, near the ends of the half types' ranges, in one model."""
    kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    values = [torch.tensor([6e4, -6e4, 100.0 * (rank + 1), 1e-7, 0.0], dtype=kind) for kind in kinds]
    return averaged(values, table(ranks), {"block_size": 2})


def non_finite(rank, ranks):
    """Rank 1 gets Inf in the second of three steps, once with a scaler that skips, once with an error."""
    model = DistributedDataParallel(Small())
    register_optinc_hook(model, table(ranks), {"block_size": 64, "error_feedback": True})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    seen = []
    for step in range(3):
        optimizer.zero_grad()
        loss = model(batch(rank, step)).square().mean()
        scaler.scale(loss * (torch.inf if (rank, step) == (1, 1) else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        seen.append((vector(model.parameters()), scaler.get_scale()))
    values = [torch.ones(8), torch.tensor([1.0, torch.nan if rank == 1 else 2.0, 3.0, 4.0])]
    return {
        "steps": seen,
        "blocks": averaged(values, table(ranks), {"block_size": 2}),
        "refused": refusal(lambda: averaged(values, table(ranks), {"non_finite": "raise"})),
    }


def resumed(rank, ranks):
    """Ten steps in one go, and five, a checkpoint and five more."""
    options = OptincOptions(bits=4, block_size=32, rounding="stochastic", error_feedback=True)

    def start(state=None):
        model = DistributedDataParallel(Small(), bucket_cap_mb=0.004)
        made = register_optinc_hook(model, table(ranks, 4), options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
        if state is not None:
            model.module.load_state_dict(state[0])
            optimizer.load_state_dict(state[1])
            made.load_state_dict(state[2])
        return model, optimizer, made

    model, optimizer, _ = start()
    whole = trained(rank, model, range(10), optimizer)
    model, optimizer, made = start()
    trained(rank, model, range(5), optimizer)
    saved = copied((model.module.state_dict(), optimizer.state_dict(), made.state_dict()))
    model, optimizer, made = start(saved)
    again = trained(rank, model, range(5, 10), optimizer)
    other = saved[2] | {"rank": (rank + 1) % ranks}
    off = OptincState(table(ranks, 4))
    return {
        "whole": whole, "again": again, "steps": made.steps,
        "names": sorted(saved[2]["residuals"]),
        "other rank": refusal(lambda: made.load_state_dict(other)),
        "off": refusal(lambda: off.load_state_dict(saved[2])),
        "keys": refusal(lambda: made.load_state_dict({"steps": 1})),
    }  # fmt: skip


def unused(rank, ranks):
    """Six steps in which the middle layer is not used in the second and the fourth, with error feedback."""
    model = DistributedDataParallel(Small(), bucket_cap_mb=0.004, find_unused_parameters=True)
    options = OptincOptions(bits=4, block_size=32, error_feedback=True)
    register_optinc_hook(model, table(ranks, 4), options)
    own = Small()
    steps = []
    for step in range(6):
        whole = step not in (1, 3)
        model.zero_grad()
        own.zero_grad()
        own.load_state_dict(model.module.state_dict())
        model(batch(rank, step), whole=whole).square().mean().backward()
        own(batch(rank, step), whole=whole).square().mean().backward()
        mine = {name: gradient.numpy() for name, gradient in gradients(own).items()}
        mean = {name: gradient.numpy() for name, gradient in gradients(model.module).items()}
        steps.append((mine, mean))
    return steps


def models(rank, ranks):
    """Models without gradients, with one, and with an empty parameter of its own type."""
    frozen = Small()
    for parameter in list(frozen.parameters())[1:]:
        parameter.requires_grad_(requires_grad=False)
    model = DistributedDataParallel(frozen)
    register_optinc_hook(model, table(ranks))
    one = trained(rank, model, range(2))
    values = [torch.full((3,), float(rank)), torch.empty(0, dtype=torch.float64)]
    empty = averaged(values, table(ranks))
    return {"one": one, "empty": empty}


def sparse(rank, ranks):
    """A sparse embedding beside a parameter that is not used."""

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.EmbeddingBag(10, 4, sparse=True)
            self.unused = nn.Linear(2, 2)

        def forward(self, index):
            return self.words(index).sum()

    model = DistributedDataParallel(Words(), find_unused_parameters=True)
    register_optinc_hook(model, table(ranks))
    return refusal(lambda: model(torch.tensor([[1, 2]])).backward())


def joined(rank, ranks):
    """Rank 0 has three batches, the others five."""
    model = DistributedDataParallel(Values(torch.tensor([float(rank + 1)])))
    register_optinc_hook(model, table(ranks))
    seen = []
    with model.join():
        for _ in range(3 if rank == 0 else 5):
            model.zero_grad()
            model().backward()
            seen.append(float(model.module.parts[0].grad))
    return seen


def compiled(rank, ranks):
    """The same training eager and compiled."""
    found = []
    for compiling in (False, True):
        model = DistributedDataParallel(Small())
        register_optinc_hook(model, table(ranks), {"block_size": 64})
        run_model = torch.compile(model, backend="eager") if compiling else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for step in range(3):
            optimizer.zero_grad()
            run_model(batch(rank, step)).square().mean().backward()
            optimizer.step()
        found.append(vector(model.parameters()))
    return found


class Wrapper:
    """A trainer's wrapper of a DDP module."""

    def __init__(self, module):
        self.module = module

    def register_comm_hook(self, state, hook):
        self.module.register_comm_hook(state, hook)

    def named_parameters(self):
        return self.module.named_parameters()


def registered(rank, ranks):
    """Ways to register, and what is refused."""
    values = drawn(rank, 50)
    through = DistributedDataParallel(Values(*values))
    register_optinc_hook(Wrapper(through), table(ranks), OptincOptions(block_size=64))
    through().backward()
    direct = DistributedDataParallel(Values(*values))
    state = OptincState(table(ranks), OptincOptions(block_size=64))
    direct.register_comm_hook(state, optinc_hook)
    direct().backward()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        copy = copied(OptincState(table(ranks), process_group=distributed.group.WORLD))
    return {
        "through": through.module.parts[0].grad,
        "direct": direct.module.parts[0].grad,
        "unknown": refusal(lambda: register_optinc_hook(through, table(ranks), {"bit": 8})),
        "warned": [str(one.message) for one in warned],
        "group": copy.process_group is None,
        "steps": copied(state).steps,
    }


def differing(rank, ranks):
    """Ranks that are set up differently, or whose network does not fit."""
    values = drawn(rank, 50)
    return {
        "options": refusal(lambda: averaged(values, table(ranks), {"block_size": 64 if rank else 32})),
        "bits": refusal(lambda: averaged(values, table(ranks, 4 if rank == 1 else 8), {"bits": 8})),
        "wrong bits": refusal(lambda: averaged(values, table(ranks, 4), {"bits": 8})),
        "missing": refusal(lambda: averaged(values, None if rank == 1 else table(ranks))),
        "host": refusal(lambda: averaged(values, table(ranks), {"chip_host": ranks})),
        "servers": refusal(lambda: averaged(values, table(ranks - 1))),
    }


class Failing:
    """An executor that fails in its third answer, as a bench may."""

    def __init__(self, ranks, error):
        self.servers, self.bits, self.inputs, self.batch_limit = ranks, 8, 4, None
        self.calls, self.error = 0, error

    def run(self, codes, out=None):
        self.calls += 1
        if self.calls == 3:
            raise self.error("output 2 of the chip is dark")
        return ExactExecutor(self.servers, 8).run(codes, out)


def failing(rank, ranks):
    """Rank 1's executor fails in the third step, also with what ends a process; a fourth step is tried."""
    found = {}
    for error in (OptincError, SystemExit):
        model = DistributedDataParallel(Values(*drawn(rank, 50)))
        register_optinc_hook(model, Failing(ranks, error) if rank == 1 else table(ranks), {"timeout_s": 30.0})
        messages = found[error.__name__] = []
        for _ in range(4):
            messages.append(refusal(lambda model=model: model().backward()))
            with contextlib.suppress(RuntimeError):
                model.zero_grad()
    return found


def warmed(rank, ranks):
    """Two steps of warm-up in floating point."""
    model = DistributedDataParallel(Values(*drawn(rank, 500)))
    register_optinc_hook(model, table(ranks), {"warmup_steps": 2})
    found = []
    for _ in range(3):
        model.zero_grad()
        model().backward()
        found.append(model.module.parts[0].grad.clone())
    return found


def costs(rank, ranks):
    """What a step of 12 000 elements costs, with shares and with a chip host."""
    found = []
    for host in (None, 0):
        model = DistributedDataParallel(Values(*drawn(rank, 12_000)))
        holds = table(ranks) if host in (None, rank) else None
        state = register_optinc_hook(model, holds, {"block_size": 1000, "chip_host": host})
        model().backward()
        found.append(state.costs)
    return found


def sharded(rank, ranks):
    """Three steps of FSDP2 on the CPU, its own reduce-scatter beside ours; and what is refused."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (ranks,))

    def train(ours):
        model, shared = Small(), OptincReduceScatter(table(ranks), OptincOptions(block_size=32))
        for part in (model.first, model.middle, model.last, model):
            fully_shard(part, mesh=mesh)
            if ours:
                part.set_custom_reduce_scatter(shared)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(batch(rank, step)).square().mean().backward()
            optimizer.step()
        shared.close()
        return vector(parameter.full_tensor() for parameter in model.parameters())

    scatter = OptincReduceScatter(table(ranks))
    given = torch.arange(6.0 * ranks).reshape(2, -1)[0] * (rank + 1)
    mean, total = torch.empty(3), torch.empty(3)
    scatter(mean, given, distributed.group.WORLD, distributed.ReduceOp.AVG)
    scatter(total, given, distributed.group.WORLD, distributed.ReduceOp.SUM)
    return {
        "ours": train(True), "float": train(False), "mean": mean, "sum": total, "elements": scatter.costs.elements,
        "operation": refusal(lambda: scatter(mean, given, distributed.group.WORLD, distributed.ReduceOp.MAX)),
        "feedback": refusal(lambda: OptincReduceScatter(table(ranks), OptincOptions(error_feedback=True))),
    }  # fmt: skip


def closed(rank, ranks):
    """Ten trainings one after the other, each with a hook of its own that is closed."""
    open_files = []
    for _ in range(10):
        model = DistributedDataParallel(Values(*drawn(rank, 50)))
        state = register_optinc_hook(model, table(ranks))
        model().backward()
        first = model.module.parts[0].grad.clone()
        state.close()
        model.zero_grad()
        model().backward()  # makes new connections
        state.close()
        distributed.barrier()
        open_files.append(len(list(OPEN_FILES.iterdir())) if OPEN_FILES.is_dir() else 0)
    return {"files": open_files, "steps": state.steps, "same": torch.equal(first, model.module.parts[0].grad)}


def alone(rank, ranks):
    """One rank: gradients come back as they are."""
    model = DistributedDataParallel(Values(torch.tensor([1.0, 1e-30, torch.pi, np.nextafter(1.0, 2.0)])))
    register_optinc_hook(model, table(1))
    model().backward()
    return model.module.parts[0].grad


def first_and_later(rank, ranks):
    """Equal gradients in the first step, which has one bucket, and in later ones."""
    model = DistributedDataParallel(Values(*drawn(rank, 300, 7, 900)), bucket_cap_mb=1e-3)
    register_optinc_hook(model, table(ranks), {"block_size": 64})
    found = []
    for _ in range(3):
        model.zero_grad()
        model().backward()
        found.append(vector(part.grad for part in model.module.parts))
    return found
