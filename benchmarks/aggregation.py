"""Averaging gradients: the hook beside gloo's all-reduce, the table executor alone, and what training comes to.

``--part speed`` averages 25 million float32 of each of 4 processes, in four buckets of 25 MB, DDP's own size, from
quantising to dequantising, in turn with ``all_reduce`` of the same buckets. Times depend on the load of the machine,
ratios less.

``--part training`` trains a perceptron and a residual network on digits and a language model on text, in 4 processes,
with gradients averaged in ten ways and 5 seeds each; equal seeds have equal weights and samples. Loss is that of the
validation part after the last step. It takes about 45 minutes of CPU time, half of that on two free cores.

Without ``--part`` both run; ``--quick`` averages 5 million and trains the perceptron alone, 200 steps with 2 seeds;
``--json FILE`` writes the figures. Every process has one thread.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _harness import Row

RANKS, BUCKETS, REPEATS = 4, 4, 15
ELEMENTS, QUICK_ELEMENTS = 25_000_000, 5_000_000
RATIO, TABLE_RATE, TRAFFIC = 1.5, 300.0, 0.27


def main() -> None:
    parser = argparse.ArgumentParser(description="Averaging gradients through the hook.")
    parser.add_argument("--part", choices=("speed", "training"), help="what to measure; default: both")
    parser.add_argument("--quick", action="store_true", help="a fifth of the elements; the perceptron with 2 seeds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path.append(sys.path.pop(0))  # this folder last, behind the packages that are measured
    import torch
    from _harness import conclude, row_table

    torch.set_num_threads(1)
    rows: list[Row] = []
    if arguments.part != "training":
        rows += [*look_ups(), *throughput(QUICK_ELEMENTS if arguments.quick else ELEMENTS)]
    if arguments.part != "speed":
        import _training

        trained = list(_training.rows(quick=arguments.quick))
        print(f"{_training.training_table(trained)}\n")
        rows += trained
    print(row_table(rows))
    conclude(rows, arguments.json)


def look_ups() -> "Iterator[Row]":
    """Table executors of several spaces, in millions of elements a second of CPU time."""
    import numpy as np
    from _harness import at_least, cpu_times, figure

    from optinc_hw.aggregation import ExactExecutor, TableExecutor

    count = 1_000_000
    for servers, bits in ((4, 8), (8, 8), (16, 8), (4, 10), (4, 4)):
        table = TableExecutor.from_executor(ExactExecutor(servers, bits))
        codes = (
            np.random.default_rng(0).integers(0, 1 << bits, (servers, count)).astype(np.uint8 if bits <= 8 else "u2")
        )
        answers = np.empty(count, dtype=codes.dtype)
        spent = cpu_times({"table": lambda t=table, c=codes, a=answers: t.run(c.T, out=a)}, 0.5)["table"]
        case, rate = f"table executor, {servers} servers, {bits} bits", count / spent / 1e3
        row = (
            at_least(case, rate, "M elements/s", TABLE_RATE) if (servers, bits) == (4, 8) else figure(case, rate, "M/s")
        )
        yield row


def throughput(elements: int) -> "Iterator[Row]":
    """Hook and all-reduce of the same buckets in turn."""
    import torch
    from _harness import at_least, at_most, figure

    with TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(measure, args=(folder, elements), nprocs=RANKS)
        found = torch.load(Path(folder, "found"), weights_only=True)
    hook, reduce = (statistics.median(found[name]) for name in ("hook", "all_reduce"))
    name = f"{RANKS} processes, {elements / 1e6:g} M float32 each"
    yield figure(f"{name}: hook, wall time", 1e3 * hook, "ms")
    yield figure(f"{name}: all_reduce, wall time", 1e3 * reduce, "ms")
    yield at_least(f"{name}: all_reduce over hook", reduce / hook, "times", RATIO)
    yield figure(f"{name}: hook", elements / hook / 1e6, "M/s")
    yield at_most(f"{name}: bytes sent over those of a float32 ring", found["traffic"], "", TRAFFIC)
    for phase, seconds in found["seconds"].items():
        yield figure(f"{name}: {phase}, first rank", 1e3 * seconds, "ms")


def measure(rank: int, folder: str, elements: int) -> None:
    """Average through hook and all-reduce in turn; the first rank writes the times."""
    import torch
    from torch import distributed

    from optinc_hw.aggregation import ExactExecutor, OptincState, TableExecutor, optinc_hook

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    generator = torch.Generator().manual_seed(rank)
    buckets = [Bucket(torch.randn(elements // BUCKETS, generator=generator)) for _ in range(BUCKETS)]
    plain = [bucket.buffer().clone() for bucket in buckets]
    state = OptincState(TableExecutor.from_executor(ExactExecutor(RANKS)))

    def hook() -> None:
        for future in [optinc_hook(state, bucket) for bucket in buckets]:
            future.wait()

    def all_reduce() -> None:
        for work in [distributed.all_reduce(buffer, async_op=True) for buffer in plain]:
            work.wait()

    times: dict[str, list[float]] = {"hook": [], "all_reduce": []}
    hook()
    before = state.costs
    for _ in range(REPEATS):
        for name, call in (("hook", hook), ("all_reduce", all_reduce)):
            distributed.barrier()
            begun = time.perf_counter()
            call()
            distributed.barrier()
            times[name].append(time.perf_counter() - begun)
    costs = state.costs
    seconds = {name: (spent - before.seconds[name]) / REPEATS for name, spent in costs.seconds.items()}
    if rank == 0:
        torch.save({**times, "traffic": costs.traffic, "seconds": seconds}, Path(folder, "found"))
    distributed.destroy_process_group()


class Bucket:
    """What DDP hands to a hook: one parameter's gradient."""

    def __init__(self, gradient) -> None:
        import torch

        self._gradient = gradient
        self._parameters = [torch.nn.Parameter(gradient)]

    def buffer(self):
        return self._gradient

    def gradients(self):
        return [self._gradient]

    def parameters(self):
        return self._parameters

    def is_last(self) -> bool:
        return True


if __name__ == "__main__":
    main()
