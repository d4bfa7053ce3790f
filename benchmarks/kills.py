"""Calibrations that are killed at random moments and taken up again: are they as if they never were?

``python benchmarks/kills.py`` kills 200 times, ``--quick`` 20 times, ``--kills N`` N times; ``--only NAME`` one kind of
run; ``--json FILE`` writes the figures. Half of the kills hit a short run that does little but write (journal, netCDF
file, record): half of them anywhere, half in its last calls. The others hit `calibration.calibrate`: on a homodyne chip
of two ports at a random CPU time, and on a bare mesh of four ports by SIGKILL from outside at a random moment. After
every kill each file is opened; every run that reached its end is compared with one that was not killed, bit for bit.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

SHARES = {"short run": 0.5, "homodyne chip": 0.2, "bare mesh": 0.3}
"""Part of the kills for each kind of run."""
LAST_EVENTS = 3000
"""Calls at the end of the short run: netCDF file, removal of the journal, record."""


@dataclass
class Tally:
    """What the kills of one kind of run did."""

    kills: int = 0
    runs: int = 0
    unreadable: list = field(default_factory=list)
    different: list = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill calibrations at random moments, resume them, compare.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--quick", action="store_true", help="20 kills")
    parser.add_argument("--kills", type=int, help="number of kills")
    parser.add_argument("--only", choices=sorted(SHARES), help="kill only this kind of run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    root = Path(__file__).parents[1]
    sys.path[:0] = [str(root), str(root / "tests")]  # before this folder, which has a calibration.py of its own
    import numpy as np
    from _harness import conclude, row_table
    from killed_runs import CALIBRATE, MESH, SEARCH, calibrations

    total = arguments.kills or (20 if arguments.quick else 200)
    shares = SHARES if arguments.only is None else {arguments.only: 1.0}
    tasks = {"short run": SEARCH, "homodyne chip": CALIBRATE, "bare mesh": MESH}
    rng = np.random.default_rng(arguments.seed)
    rows = []
    for name, share in shares.items():
        task = tasks[name]
        with tempfile.TemporaryDirectory() as folder, calibrations() as children:
            tally = kill_often(children, name, task, round(share * total), rng, Path(folder))
        rows += figures(name, tally)
    rows.append(overhead())
    print(row_table(rows))
    conclude(rows, arguments.json)


def kill_often(children: object, name: str, task: dict, kills: int, rng: object, folder: Path) -> Tally:
    """Kill runs of one kind so many times, each until it ends, and compare it with one that was not killed."""
    from killed_runs import KILLED, Outcome, unreadable

    tally = Tally()
    children.begin(folder / "reference", task)  # returns once everything is loaded
    begun = time.perf_counter()
    assert children.end() == 0
    wall_s = time.perf_counter() - begun
    reference = Outcome.of(folder / "reference")
    while tally.kills < kills:
        place = folder / f"run_{tally.runs}"
        tally.runs += 1
        status = KILLED[0]
        while status != 0:
            moment = random_moment(task, reference, wall_s, rng) if tally.kills < kills else {}
            status = children.run(place, task, **moment)
            tally.kills += status in KILLED
            bad, _ = unreadable(place)
            tally.unreadable += bad
            if status not in (0, *KILLED):
                tally.different.append(f"exit status {status}")
                break
        else:
            tally.different += Outcome.of(place).differences(reference)
        print(f"{name}: {tally.kills} kills in {tally.runs} runs", end="\r", flush=True)
    print()
    for problem in (*tally.unreadable, *tally.different):
        print(problem)
    return tally


def random_moment(task: dict, reference: object, wall_s: float, rng: object) -> dict:
    """When to kill: at a count of calls, a CPU time, or any time."""
    if task.get("kind") == "mesh":
        return {"wall_s": float(rng.uniform(0.0, wall_s))}
    if task["what"] == "calibrate":
        return {"cpu_s": float(rng.uniform(0.0, reference.cpu_s))}
    first = max(1, reference.events - LAST_EVENTS) if rng.random() < 0.5 else 1
    return {"kill_at": int(rng.integers(first, reference.events + 1))}


def figures(what: str, tally: Tally) -> list[dict]:
    from _harness import at_most, figure

    return [
        figure(f"{what}: kills", tally.kills, "kills"),
        figure(f"{what}: runs that were killed until they ended", tally.runs, "runs"),
        at_most(f"{what}: files that could not be read", len(tally.unreadable), "files", 0),
        at_most(f"{what}: differences to a run that was not killed", len(tally.different), "", 0),
    ]


def overhead() -> dict:
    """Wall time that the journal adds to a sweep of 10 readings of a chip of 12 ports."""
    import numpy as np
    from _harness import figure
    from journaled_runs import header_of

    from calibration._journal import Journal
    from optinc_hw.photonics import ChipLayout

    layout = ChipLayout(12, inputs="ports", receivers="power")
    power, found = np.zeros((10, len(layout.heaters))), {"readings_w": np.zeros((10, 12))}
    times = []
    with (
        tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder,
        Journal.create(Path(folder) / "run.nc.journal", header_of(layout)) as journal,
    ):
        for _ in range(200):
            start = time.perf_counter()
            journal.step("random", {"power_w": power, "lit": np.zeros(10, dtype=np.intp)}, lambda: found)
            times.append(time.perf_counter() - start)
    return figure(
        "journal: wall time of a sweep of 10 readings, 12 ports, median", 1e3 * statistics.median(times), "ms"
    )


if __name__ == "__main__":
    main()
