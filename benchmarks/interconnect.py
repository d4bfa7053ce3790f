"""Schedules, their checker, published figures, and the time of comparing 4096 servers.

``python benchmarks/interconnect.py`` checks all schedules for every N from 2 to 300, some minutes of CPU time;
``--quick`` every 20th N. ``--json FILE`` writes the figures. One thread.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _harness import Row

MOST_S, SERVERS = 10.0, 4096
GAINS = {
    ("resnet50-32", 2): 25.3, ("resnet50-32", 32): 5.5, ("resnet50-32", 128): 1.6, ("resnet50-cifar", 1): 9.7,
    ("llama-8x384", 20): 17.6, ("llama-8x384", 128): 5.0, ("llama-8x384", 1024): 0.7,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Schedules, published figures, and the time of a comparison.")
    parser.add_argument("--quick", action="store_true", help="check every 20th number of servers only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path.append(sys.path.pop(0))  # this folder last, behind the packages that are measured
    from _harness import conclude, row_table

    rows = [*traffic(), *latencies(), *steps(), *crossovers(), *claims(), *checker(arguments.quick), *comparison()]
    print(row_table(rows))
    conclude(rows, arguments.json)


def traffic() -> "Iterator[Row]":
    """Most that a server sends, in payloads."""
    from _harness import at_most, figure

    from optinc_hw.interconnect import optinc, ring

    for nodes, expected in ((4, 1.5), (8, 1.75), (16, 1.875)):
        yield figure(f"traffic of a ring, N = {nodes}", float(ring(nodes).traffic), "payloads")
        yield at_most(f"... off {expected}", abs(float(ring(nodes).traffic) - expected), "payloads", 0.0)
        yield at_most(f"traffic of OptINC, N = {nodes}", float(optinc(nodes).traffic), "payloads", 1.0)


def latencies() -> "Iterator[Row]":
    """Part by which OptINC shortens a step, with the published hardware."""
    from _harness import at_most, figure
    from _published import latency

    for (model, batch), expected in GAINS.items():
        gain = 100 * latency(model, batch).gain
        yield figure(f"OptINC's gain, {model}, batch {batch}", gain, "%")
        yield at_most(f"... off {expected}", abs(gain - expected), "points", 0.1)


def steps() -> "Iterator[Row]":
    """Steps of WRHT beside the formula."""
    from _harness import at_least
    from _published import step_table

    table = step_table()
    yield at_least("steps of WRHT as by the formula", sum(one == two for *_, one, two in table), "entries", len(table))


def crossovers() -> "Iterator[Row]":
    """Payloads at which a ring overtakes WRHT."""
    from _harness import at_most, figure
    from _published import payload_crossover

    for nodes, wavelengths, expected in ((1024, 64, 255), (256, 16, 63)):
        found = payload_crossover(nodes, wavelengths) / 1e6
        yield figure(f"a ring overtakes WRHT, N = {nodes}, w = {wavelengths}", found, "MB")
        yield at_most(f"... off {expected}", abs(found - expected), "MB", 0.5)


def claims() -> "Iterator[Row]":
    """How many published figures come out, and WRHT's distance from them under the assumption that closes the gap."""
    from _harness import at_most, figure
    from _published import (
        ASSUMED,
        NOT,
        REPRODUCED,
        WITHIN_POINTS,
        electrical_claims,
        oddl_claims,
        oddl_rows,
        optinc_claims,
        wrht_claims,
    )

    found = {"OptINC": optinc_claims(), "WRHT": wrht_claims(), "ODDL": oddl_claims(), "switches": electrical_claims()}
    for system, group in found.items():
        for mark in (REPRODUCED, ASSUMED, NOT):
            yield figure(f"{system}: {mark}", sum(one.mark == mark for one in group), "figures")
    for one in found["WRHT"]:
        if one.remark == "A":
            published, ours = (float(text.removesuffix(" %")) for text in (one.published, one.ours))
            yield at_most(
                f"WRHT, {one.what}, assumption {one.remark}: off", abs(published - ours), "points", WITHIN_POINTS
            )
    row = oddl_rows()[0]
    yield figure("ODDL over a fat tree of full rate, no computing (published: 1.6)", row.fat_tree, "x")
    yield figure("ODDL over a SiP ring of 25 us a step, no computing (published: 1.7)", row.sip_ring, "x")
    yield figure("... what 1.6 asks of the fat tree, at most", 100 * row.fat_tree_part, "% of line rate")
    yield figure("... what 1.7 asks of the SiP ring, at least", 1e6 * row.sip_delay_s, "us a step")


def checker(quick: bool) -> "Iterator[Row]":
    """Every schedule, checked for all N from 2 to 300."""
    from _harness import at_least, figure

    from optinc_hw.errors import OptincError
    from optinc_hw.interconnect import check_schedule
    from optinc_hw.interconnect.comparison import build_systems

    counts = range(2, 301, 20 if quick else 1)
    passed = asked = 0
    begun = time.process_time()
    for nodes in counts:
        for system in build_systems(nodes):
            asked += 1
            try:
                check_schedule(system.schedule)
            except OptincError as error:
                print(f"{system.name}, N = {nodes}: {error}")
            else:
                passed += 1
    yield figure(f"checking {asked} schedules", time.process_time() - begun, "s of CPU")
    yield at_least(f"schedules that pass, N = 2 .. {counts[-1]}", passed, "schedules", asked)


def comparison() -> "Iterator[Row]":
    """All schedules for 4096 servers: times, break-even points, ranges of payload."""
    from _harness import at_most

    from optinc_hw.interconnect.comparison import Training, compare, find_workload

    job = Training.of(find_workload("resnet50"), 32)
    begun = time.process_time()
    compared = compare(job, SERVERS)
    spent = time.process_time() - begun
    yield at_most(f"comparing {len(compared.rows)} schedules, N = {SERVERS}", spent, "s of CPU", MOST_S)


if __name__ == "__main__":
    main()
