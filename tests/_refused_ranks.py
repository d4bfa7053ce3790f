"""Ranks of the tests of refused steps: one rank has Inf in some bucket of a step that is skipped on all."""

from pathlib import Path

import torch
from _hook_models import Values, drawn, refusal, vector
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from optinc_hw.aggregation import ExactExecutor, register_optinc_hook

SIZE = 2000
CASES = {
    f"{kind} {bad}": (bad, kind)
    for kind in ("copies", "views", "host", "empty last")
    for bad in range(3)
}  # fmt: skip


class Slow:
    """A chip that takes its time: buckets queue up behind it."""

    def __init__(self, ranks):
        self._exact = ExactExecutor(ranks, 8)
        self.servers, self.bits, self.inputs, self.batch_limit = ranks, 8, 4, None
        self.elements = 0

    def run(self, codes, out=None):
        for _ in range(100):
            answers = self._exact.run(codes, out)
        self.elements += len(codes)
        return answers


def steps(rank, ranks, bad, kind, *, skipped):
    """Gradients of the steps around a refused one, its message and what the executor had answered when it came."""
    values = drawn(rank, SIZE, SIZE, SIZE) + ([torch.empty(0, dtype=torch.float64)] if kind == "empty last" else [])
    model = DistributedDataParallel(Values(*values), bucket_cap_mb=0.004, gradient_as_bucket_view=kind == "views")
    executor = Slow(ranks) if kind != "host" or rank == 0 else None
    options = {"non_finite": "raise", "error_feedback": True, "chip_host": 0 if kind == "host" else None}
    state = register_optinc_hook(model, executor, options)
    seen, message, answered = [], "", 0
    for step in range(4):
        if step == 2 and skipped:
            continue
        model.zero_grad()
        factors = [torch.inf if (step, part, rank) == (2, bad, 1) else 1.0 + step for part in range(len(values))]
        model.module.values = [value * factor for value, factor in zip(values, factors, strict=True)]
        message = refusal(lambda: model().backward()) or message
        answered = executor.elements if executor and step == 2 else answered
        if step != 2:
            seen.append(vector(part.grad for part in model.module.parts[:3]).clone())
    left = executor.elements - answered if executor else 0
    residuals = state.state_dict()["residuals"]
    state.close()
    return {"seen": seen, "message": message, "left": left, "residuals": residuals}


def run(rank, ranks, folder):
    """Train with a step that is refused, and with one that is left out."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    found = {
        name: {skipped: steps(rank, ranks, *case, skipped=skipped) for skipped in (False, True)}
        for name, case in CASES.items()
    }
    torch.save(found, Path(folder, f"found_{rank}"))
    distributed.destroy_process_group()
