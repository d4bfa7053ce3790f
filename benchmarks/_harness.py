"""How benchmarks measure and report: CPU time, medians, rows of figures and tables."""

import gc
import importlib.metadata
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

Row = dict[str, Any]  # case, value, unit, goal, reached; `write_rows` adds versions and threads

PROJECT = "optinc-hw"
SINGLE = "single precision"
PRODUCT = "product"
_PACKAGES = ("numpy", "scipy", "numba", "torch", "interferometer", "strawberryfields", "phaseshift", "piquasso")
_SAMPLE_S = 0.01  # a sample repeats a quick call for so long that reading the clock does not count
_SLOW_S = 0.1  # slower calls need no caches filled again after the other contenders' turn
_MOST_SAMPLES = 25


def cpu_times(
    contenders: Mapping[str, Callable[[], object]], seconds: float, timer: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Median CPU time of a call in ms of each contender, sampled in turn so that all see the same machine.

    Parameters
    ----------
    contenders
        Calls by name; each runs once untimed, which compiles kernels and fills caches.
    seconds
        About how long to sample each; at least three samples are taken unless it is 0, then one.
    timer
        Another clock, such as ``time.perf_counter`` where waiting for another process counts.
    """
    fewest = 3 if seconds else 1
    repeats, samples, lead_in = {}, {}, {}
    for name, call in contenders.items():
        once = _call_s(call, 1, timer)
        if once < _SLOW_S * 10:
            once = max(_call_s(call, 1, timer), 1e-7)
        repeats[name] = max(1, round(_SAMPLE_S / once))
        lead_in[name] = -(-repeats[name] // 2) if once < _SLOW_S else 0
        samples[name] = min(_MOST_SAMPLES, max(fewest, int(seconds / (once * repeats[name]))))
    values: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(max(samples.values())):
        for name, call in contenders.items():
            if turn < samples[name]:
                values[name].append(_call_s(call, repeats[name], timer, lead_in[name]))
    return {name: 1e3 * statistics.median(times) for name, times in values.items()}


def _call_s(call: Callable[[], object], repeats: int, timer: Callable[[], float], lead_in: int = 0) -> float:
    gc.disable()
    try:
        for _ in range(lead_in):
            call()
        start = timer()
        for _ in range(repeats):
            call()
        return (timer() - start) / repeats
    finally:
        gc.enable()


def figure(case: str, value: float, unit: str) -> Row:
    """Row without a goal."""
    return {"case": case, "value": value, "unit": unit, "goal": None, "reached": None}


def at_least(case: str, value: float, unit: str, goal: float) -> Row:
    """Row whose value is to reach ``goal``; a value that could not be measured (NaN) leaves it open."""
    return {**figure(case, value, unit), "goal": f"at least {goal:g}", "reached": _judged(value, value >= goal)}


def at_most(case: str, value: float, unit: str, goal: float) -> Row:
    """Row whose value is to stay within ``goal``; a value that could not be measured (NaN) leaves it open."""
    return {**figure(case, value, unit), "goal": f"at most {goal:g}", "reached": _judged(value, value <= goal)}


def _judged(value: float, reached: bool) -> bool | None:
    return None if math.isnan(value) else bool(reached)


@dataclass(frozen=True)
class Comparison:
    """The project and others at one task of one size.

    Parameters
    ----------
    case
        The task, without its size.
    n
        Ports.
    times
        CPU ms by contender, of which `PROJECT` is one; `PRODUCT` is the floor and `SINGLE` the project in single
        precision, others are peers.
    errors
        Largest absolute error by contender.
    least
        By peer, the ratio peer / project to reach.
    most
        By floor, the ratio project / floor to stay within.
    """

    case: str
    n: int
    times: Mapping[str, float]
    errors: Mapping[str, float]
    least: Mapping[str, float] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)

    @property
    def peers(self) -> tuple[str, ...]:
        """Contenders that are neither the project nor a floor."""
        named = dict.fromkeys([*self.times, *self.least])
        return tuple(name for name in named if name not in (PROJECT, SINGLE) and not name.startswith(PRODUCT))

    def ratio_row(self, name: str) -> Row:
        """Return the row of a peer over the project, or of the project over a floor or over single precision."""
        case = f"{self.case}, n = {self.n}"
        own, other = self.times[PROJECT], self.times.get(name, math.nan)
        if name in self.peers:
            label = f"{case}: {name} over {PROJECT}" + ("" if name in self.times else " (not installed)")
            goal = self.least.get(name)
            return figure(label, other / own, "x") if goal is None else at_least(label, other / own, "x", goal)
        label = f"{case}: {PROJECT} over {name}"
        goal = self.most.get(name)
        return figure(label, own / other, "x") if goal is None else at_most(label, own / other, "x", goal)

    def rows(self) -> list[Row]:
        """Return a row per time, ratio and error."""
        case = f"{self.case}, n = {self.n}"
        others = dict.fromkeys([*self.times, *self.least])
        return [
            *(figure(f"{case}: {name}", value, "ms of CPU") for name, value in self.times.items()),
            *(self.ratio_row(name) for name in others if name != PROJECT),
            *(figure(f"{case}: {name}, largest error", error, "") for name, error in self.errors.items()),
        ]


def comparison_tables(comparisons: Sequence[Comparison]) -> str:
    """Markdown tables of CPU ms, one per case, with ratios in brackets."""
    parts = []
    for case, group in groupby(comparisons, key=lambda item: item.case):
        lines = list(group)
        names = [name for name in dict.fromkeys(name for line in lines for name in line.times) if name != PROJECT]
        judged = list(dict.fromkeys(name for line in lines for name in line.errors))
        table = [["n", PROJECT, *names, "goals", f"largest error ({', '.join(judged)})"]]
        table += [[*_cells(line, names), _goals(line), _errors(line, judged)] for line in lines]
        parts.append(f"{case} (ms of CPU)\n\n{_markdown(table)}")
    return "\n\n".join(parts)


def _cells(line: Comparison, names: Sequence[str]) -> list[str]:
    return [str(line.n), f"**{_short(line.times[PROJECT])}**", *(_cell(line, name) for name in names)]


def _errors(line: Comparison, names: Sequence[str]) -> str:
    return " / ".join(f"{line.errors[name]:.0e}" if name in line.errors else "–" for name in names)


def _cell(line: Comparison, name: str) -> str:
    if name not in line.times:
        return "–"
    return f"{_short(line.times[name])} ({_short(line.ratio_row(name)['value'])}x)"


def _goals(line: Comparison) -> str:
    rows = [(name, line.ratio_row(name)) for name in (*line.least, *line.most)]
    return "; ".join(f"{row['goal']}x {name}: {verdict(row)}" for name, row in rows)


def row_table(rows: Sequence[Row]) -> str:
    """Markdown table of rows."""
    lines = [[row["case"], _short(row["value"]), row["unit"], row["goal"] or "", verdict(row)] for row in rows]
    return _markdown([["case", "value", "unit", "goal", "reached"], *lines])


def verdict(row: Row) -> str:
    """Whether a row reached its goal, in a word."""
    if row["goal"] is None:
        return ""
    return {True: "reached", False: "MISSED", None: "not measured"}[row["reached"]]


def _markdown(table: Sequence[Sequence[str]]) -> str:
    head, *body = ["| " + " | ".join(line) + " |" for line in table]
    return "\n".join([head, "|" + " --- |" * len(table[0]), *body])


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def versions() -> dict[str, str]:
    """Return the versions of the packages that matter here, of those that are installed."""
    found = {}
    for name in (PROJECT, *_PACKAGES):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def threads() -> int:
    """Return the largest number of threads that a loaded numerical library may use."""
    return max((pool["num_threads"] for pool in threadpool_info()), default=1)


def conclude(rows: Sequence[Row], path: Path | None) -> None:
    """Print versions, threads and which goals were missed; write the rows to ``path`` if there is one."""
    print("versions: " + ", ".join(f"{name} {version}" for name, version in versions().items()))
    print(f"threads: {threads()}")
    missed = [row["case"] for row in rows if row["reached"] is False]
    print("every measured goal reached" if not missed else "goals missed: " + "; ".join(missed))
    if path is not None:
        write_rows(rows, path)


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows as JSON, each with the versions and the number of threads; NaN becomes null."""
    common = {"versions": versions(), "threads": threads()}
    plain = [{**row, "value": None if math.isnan(row["value"]) else row["value"], **common} for row in rows]
    path.write_text(json.dumps(plain, indent=1, allow_nan=False) + "\n", encoding="utf-8")
