"""What every driver makes of every fault: right values, typed errors, flagged readings, and wrong numbers (none).

``python benchmarks/faults.py`` prints tables of faults by drivers, ``--json FILE`` writes every figure, ``--quick``
takes about ten minutes. Each fault hits each command (the first 20) of an exchange that reads and of one that sets, on
chips of three seeds; afterwards the next exchanges must be right. Drivers and simulated instruments are those of the
tests.

A reply in which only digits have changed looks like any other reply: no driver can tell it from a genuine one, because
these protocols have no check sums. Such replies are counted apart, as "well-formed".
"""

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description="Faults by drivers: outcomes, and whether the next exchange is right.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--quick", action="store_true", help="one seed, three commands of each exchange")
    parser.add_argument(
        "--only", nargs="*", default=(), metavar="DRIVER", help="cases whose names contain one of these"
    )
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    logging.disable(logging.CRITICAL)  # drivers warn of what they found; that is what is counted here
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from _harness import threads, versions, write_rows
    from driver_cases import CASES

    cases = [case for case in CASES if not arguments.only or any(part in case.id for part in arguments.only)]
    seeds, positions = ((3,), 3) if arguments.quick else ((3, 4, 5), 20)
    counts = {case.id: driver_counts(case, seeds, positions) for case in cases}
    print("right / typed error / flagged / well-formed / WRONG; * where a next exchange was not right")
    for role in dict.fromkeys(case.role for case in cases):
        print(f"\n{role}\n\n{table({case.id: counts[case.id] for case in cases if case.role == role})}")
    rows = list(figures(counts))
    print("versions: " + ", ".join(f"{name} {version}" for name, version in versions().items()))
    missed = [row["case"] for row in rows if row["reached"] is False]
    print("every goal reached" if not missed else "goals missed: " + "; ".join(missed))
    print(f"threads: {threads()}")
    if arguments.json is not None:
        write_rows(rows, arguments.json)


def driver_counts(case: object, seeds: Sequence[int], positions: int) -> dict[str, Counter[str]]:
    """Count outcomes by fault; ``next wrong`` counts faults after which a next exchange was not right."""
    from fault_exchanges import FAULTS, rig_of
    from fault_situations import ALL_NAMES, live_through, situations_of

    counts: dict[str, Counter[str]] = {name: Counter() for name in (*FAULTS, *ALL_NAMES)}
    for seed in seeds:
        with rig_of(case, seed) as rig:
            for name, fault in FAULTS.items():
                for kind in ("read", "put"):
                    for outcome, rest in one_by_one(rig, fault, kind, positions):
                        note(counts[name], outcome, rest, f"{case.id}: {name} in {kind}")
            for name, situation in situations_of(case.role).items():
                note(counts[name], *live_through(rig, situation), f"{case.id}: {name}")
    print(f"{case.id}: {sum(map(Counter.total, counts.values()))} faults", file=sys.stderr, flush=True)
    return counts


def note(outcomes: Counter[str], outcome: str, rest: str, what: str) -> None:
    """Count an outcome, and whether what came after it was right."""
    outcomes[outcome] += 1
    if rest:
        outcomes["next wrong"] += 1
        print(f"{what}: {outcome}, then {rest}", file=sys.stderr)


def one_by_one(rig: object, fault: object, kind: str, positions: int) -> Iterator[tuple[str, str]]:
    """Let a fault hit the first command of an exchange, then the second one, until the exchange has no more."""
    from fault_exchanges import NOT_HIT, WRONG

    for after in range(positions):
        rig.prepare()
        outcome = rig.suffer(fault, kind, after)
        if outcome == NOT_HIT:
            return
        if outcome == WRONG:
            print(f"{rig.case.id}: WRONG after {rig.faults.hits('device')[-1]}", file=sys.stderr)
        yield outcome, rig.carry_on(fault, kind)


def table(counts: dict[str, dict[str, Counter[str]]]) -> str:
    """Markdown table of the outcomes of every fault that some of the drivers met."""
    names = [name for name in next(iter(counts.values())) if any(by_fault[name] for by_fault in counts.values())]
    lines = ["| fault | " + " | ".join(counts) + " |", "|" + " --- |" * (len(counts) + 1)]
    lines += [f"| {name} | " + " | ".join(cell(counts[driver][name]) for driver in counts) + " |" for name in names]
    return "\n".join(lines)


def cell(outcomes: Counter[str]) -> str:
    from fault_exchanges import ALIKE, ERROR, FLAGGED, RIGHT, WRONG

    mark = "*" if outcomes["next wrong"] else ""
    return " / ".join(str(outcomes[name]) for name in (RIGHT, ERROR, FLAGGED, ALIKE, WRONG)) + mark


def figures(counts: dict[str, dict[str, Counter[str]]]) -> Iterator[dict[str, object]]:
    """Rows of figures: goals per fault and driver, and everything that was counted."""
    from _harness import at_most, figure
    from fault_exchanges import ALIKE, ERROR, FLAGGED, RIGHT, WRONG

    for driver, by_fault in counts.items():
        for fault, outcomes in by_fault.items():
            if not outcomes:
                continue  # no fault of instruments of this role
            case = f"{driver}, {fault}"
            for name in (RIGHT, ERROR, FLAGGED, ALIKE):
                yield figure(f"{case}: {name}", outcomes[name], "exchanges")
            yield at_most(f"{case}: wrong numbers", outcomes[WRONG], "exchanges", 0)
            yield at_most(f"{case}: next exchange not right", outcomes["next wrong"], "exchanges", 0)
    total = sum((outcomes for by_fault in counts.values() for outcomes in by_fault.values()), Counter())
    for name in (RIGHT, ERROR, FLAGGED, ALIKE):
        yield figure(f"all drivers and faults: {name}", total[name], "exchanges")
    yield at_most("all drivers and faults: wrong numbers", total[WRONG], "exchanges", 0)
    yield at_most("all drivers and faults: next exchange not right", total["next wrong"], "exchanges", 0)


if __name__ == "__main__":
    main()
