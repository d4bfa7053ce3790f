"""Networks retrained through hidden chips: symbol error rates before and after, on the chip.

``python benchmarks/retraining.py`` retrains the network for 4 servers and 8 bits on 100 hidden chips of 8 ports, a
tile of 5 at a time, and on 3 simulated benches through their instruments; ``--chips N``, ``--benches N`` and ``--first
SEED`` take others, ``--quick`` 2 chips; ``--json FILE`` writes the figures. Chips have couplers of 0.05 rad, crosstalk
of 1 to 5 % at one pitch that falls by e a pitch, reading noise, and 8-bit drivers of the mesh. The twin knows neither
couplers of the mesh, nor its phases better than 0.05 rad, nor single crosstalk better than 30 %. A process a core,
one thread each.
"""

import argparse
import math
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _harness import Row
    from _retrained import Retrained

    from optinc_hw.onn import TilePlan

PORTS = 8
TWIN_ALONE = 5  # chips for which the twin alone is retrained, too
RATE_BEFORE, RATE_AFTER, CELL_S = 0.3, 1e-4, 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Networks retrained through hidden chips.")
    parser.add_argument("--chips", type=int, default=100, metavar="N", help="chips (default 100)")
    parser.add_argument("--benches", type=int, default=3, metavar="N", help="simulated benches (default 3)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="seed of the first chip (default 0)")
    parser.add_argument("--quick", action="store_true", help="2 chips")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path.append(sys.path.pop(0))  # this folder last, behind the packages that are measured
    import torch
    from _harness import conclude, row_table
    from _retrained import on_bench, on_chip

    from optinc_hw.onn import build_exact, tile

    torch.set_num_threads(1)
    chips, benches = (2, 0) if arguments.quick else (arguments.chips, arguments.benches)
    plan = tile(build_exact(4, 8, slope=8.0), PORTS)
    rows: list[Row] = []
    for name, number, retrained in (("chips", chips, on_chip), ("benches", benches, on_bench)):
        rows += retrained_rows(name, number, arguments.first, plan, retrained, 0 if arguments.quick else TWIN_ALONE)
    print(row_table(rows))
    conclude(rows, arguments.json)


def retrained_rows(
    name: str, number: int, first: int, plan: "TilePlan", retrained, alone: int = TWIN_ALONE
) -> "Iterator[Row]":
    """Retrain a number of chips, the first ``alone`` on the twin alone, too, and give the figures."""
    from _retrained import in_processes

    if number:
        yield from figures(name, in_processes(retrained, plan, PORTS, first, number, alone), len(plan.tiles))


def figures(name: str, found: "list[Retrained]", parts: int) -> "Iterator[Row]":
    """Figures of one kind of chips."""
    from _harness import at_least, at_most, figure

    rates = [one.after.rate for one in found]
    good = sum(rate < RATE_AFTER and one.before.rate > RATE_BEFORE for rate, one in zip(rates, found, strict=True))
    yield figure(f"{name}: number", len(found), "")
    yield figure(f"{name}: symbols judged on each", found[0].after.symbols, "symbols")
    before = statistics.median(one.before.rate for one in found)
    yield figure(f"{name}: median symbol error rate before", before, "")
    twins = [one.twin for one in found if not math.isnan(one.twin)]
    if twins:
        yield figure(f"{name}: median by retraining on the twin alone, {len(twins)}", statistics.median(twins), "")
    yield at_most(f"{name}: median symbol error rate after", statistics.median(rates), "", RATE_AFTER)
    yield at_least(f"{name}: share of chips from > {RATE_BEFORE:g} to < {RATE_AFTER:g}", good / len(found), "", 0.95)
    yield figure(f"{name}: least margin after", min(one.after.margin for one in found), "")
    yield figure(f"{name}: median readings of the training", statistics.median(one.readings for one in found), "")
    seconds = statistics.median(one.seconds for one in found) / parts
    yield at_most(f"{name}: median CPU time a cell", seconds, "s", CELL_S)


if __name__ == "__main__":
    main()
