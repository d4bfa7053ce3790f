"""Training with gradients averaged in several ways: runs in processes of their own, and what they say over seeds."""

import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from _harness import Row, at_most, figure
from numpy.typing import NDArray
from scipy import stats

from optinc_hw.aggregation import ExactExecutor, OptincOptions
from optinc_hw.onn import InputSpace

sys.path.append(str(Path(__file__).parents[1] / "examples"))

from training import (
    TABLE_II,
    Averaging,
    Outcome,
    Task,
    digits_perceptron,
    digits_resnet,
    documentation,
    language_model,
    train,
    twin_answers,
)

RANKS = 4
FLOAT, JUDGED, EXACT, TWIN = "float32", "8 bit, block 1024", "16 bit, block 1024", "8 bit, block 1024, calibrated twin"
AMPLIFIED = 1000
_CONFIDENCE = 0.95
_FEWEST_JUDGED = 3  # two seeds say next to nothing about a spread

Losses = Mapping[str, Sequence[float]]
"""Final losses of a way to average, one a seed, in the same order for all."""


def tasks() -> dict[str, Task]:
    """Make the three examples, each with its own model and data."""
    made = (digits_perceptron(), digits_resnet(), language_model("language model", documentation()))
    return {task.name: task for task in made}


def averagings(answers: NDArray[np.int64]) -> dict[str, Averaging]:
    """Return the ways to average, of which the first is the reference."""
    sixteen = OptincOptions(bits=16)
    worst = TABLE_II["3-6"]
    amplified = replace(worst, rate=AMPLIFIED * worst.rate)
    return {
        FLOAT: Averaging("float"),
        JUDGED: Averaging("table"),
        TWIN: Averaging("twin", answers=answers),
        "4 bit, block 256, error feedback": Averaging(
            "table", OptincOptions(bits=4, block_size=256, error_feedback=True)
        ),
        EXACT: Averaging("exact", sixteen),
        **{f"{EXACT}, errors of layers {row}": Averaging("exact", sixteen, TABLE_II[row]) for row in TABLE_II},
        f"{EXACT}, errors of layers 3-6 {AMPLIFIED} times as often": Averaging("exact", sixteen, amplified),
    }


def rows(*, quick: bool) -> Iterator[Row]:
    """Train every example in every way with every seed."""
    answers = twin_answers(RANKS, 8)
    space = InputSpace(RANKS, 8, 4)
    exact = ExactExecutor(RANKS, 8).run(space.codes(np.arange(space.size)))
    yield figure(f"calibrated twin of 4 ports: wrong answers of {space.size}", float((answers != exact).sum()), "")
    ways = averagings(answers)
    seeds, names = (range(2), [digits_perceptron().name]) if quick else (range(5), list(tasks()))
    for name in names:
        outcomes = trained(name, ways, seeds, 200 if quick else None)
        yield from figures(name, {way: [run.loss for run in runs] for way, runs in outcomes.items()})
        yield from others(name, outcomes)


def trained(
    name: str, ways: Mapping[str, Averaging], seeds: Sequence[int], steps: int | None
) -> dict[str, list[Outcome]]:
    """Train one example on `RANKS` processes, which stay for all runs."""
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, args=(folder, name, ways, seeds, steps), nprocs=RANKS)
        found: dict[str, list[Outcome]] = torch.load(Path(folder, "found"), weights_only=False)  # our own file
    return found


def _rank(
    rank: int, folder: str, name: str, ways: Mapping[str, Averaging], seeds: Sequence[int], steps: int | None
) -> None:
    """One rank's runs; the first rank writes what came of them."""
    from torch import distributed

    torch.set_num_threads(1)
    task, found = tasks()[name], {}
    for way, averaging in ways.items():
        runs = []
        for seed in seeds:
            meet = Path(folder, f"meet_{len(found)}_{seed}").as_uri()  # a group of its own frees the hook's groups
            distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=RANKS)
            runs.append(train(task, averaging, seed, steps))
            distributed.destroy_process_group()
        found[way] = runs
        if rank == 0:
            print(f"{name}, {way}: loss {statistics.mean(run.loss for run in runs):.4f}", file=sys.stderr, flush=True)
    if rank == 0:
        torch.save(found, Path(folder, "found"))


@dataclass(frozen=True)
class Interval:
    """Mean of paired differences and the interval that holds the true one with `_CONFIDENCE`."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], reference: Sequence[float]) -> "Interval":
        """Student's interval of values minus their partners."""
        differences = np.subtract(values, reference)
        mean, error = float(differences.mean()), float(stats.sem(differences))
        reach = float(stats.t.ppf(0.5 + _CONFIDENCE / 2.0, len(differences) - 1)) * error
        return cls(mean, mean - reach, mean + reach)


def figures(name: str, losses: Losses) -> Iterator[Row]:
    """Losses over seeds, and each way's differences from the first, which is the reference."""
    reference = losses[FLOAT]
    spread = statistics.stdev(reference)
    for way, found in losses.items():
        case = f"{name}, {way}"
        yield figure(f"{case}: loss, mean of {len(found)} seeds", statistics.mean(found), "nat")
        yield figure(f"{case}: loss, standard deviation over seeds", statistics.stdev(found), "nat")
        if way != FLOAT:
            interval = Interval.of(found, reference)
            yield figure(f"{case}: loss minus {FLOAT}'s, same seeds", interval.mean, "nat")
            yield figure(f"{case}: lower end of its 95 % interval", interval.low, "nat")
            yield figure(f"{case}: upper end of its 95 % interval", interval.high, "nat")
        if way == JUDGED:
            ratio = abs(statistics.mean(found) - statistics.mean(reference)) / spread
            label = f"{case}: difference of the mean losses over the standard deviation of {FLOAT}'s"
            yield at_most(label, ratio, "", 1.0) if len(found) >= _FEWEST_JUDGED else figure(label, ratio, "")


def others(name: str, outcomes: Mapping[str, Sequence[Outcome]]) -> Iterator[Row]:
    """Accuracy, answers made wrong, and whether equal bits came of it."""
    for way, runs in outcomes.items():
        yield figure(f"{name}, {way}: accuracy, mean", statistics.mean(run.accuracy for run in runs), "")
        if any(run.injected for run in runs):
            injected = statistics.mean(run.injected for run in runs)
            yield figure(f"{name}, {way}: answers made wrong a run", injected, "")
    apart = sum(not run.equal for runs in outcomes.values() for run in runs)
    yield at_most(f"{name}: runs whose ranks ended with different bits", apart, "", 0)
    same = sum(a.digest == b.digest for a, b in zip(outcomes[TWIN], outcomes[JUDGED], strict=True))
    yield figure(f"{name}: runs by the twin that end with the bits of the exact table's", same, "")
    seconds = sum(run.seconds for runs in outcomes.values() for run in runs)
    yield figure(f"{name}: wall time of all steps", seconds, "s")


def training_table(found: Sequence[Row]) -> str:
    """Markdown table of losses, differences with intervals, and accuracies, of an iterable of rows."""
    values = {row["case"]: row["value"] for row in found}
    lines = ["| training | loss | spread | minus float32 (95 %) | accuracy |", "| --- | --- | --- | --- | --- |"]
    for case, mean in values.items():
        way, _, what = case.partition(": loss, mean of")
        if what:
            low, high = (values.get(f"{way}: {end} end of its 95 % interval") for end in ("lower", "upper"))
            change = "" if low is None or high is None else f"{low:+.4f} .. {high:+.4f}"
            spread = values[f"{way}: loss, standard deviation over seeds"]
            lines.append(f"| {way} | {mean:.4f} | {spread:.4f} | {change} | {values[f'{way}: accuracy, mean']:.2%} |")
    return "\n".join(lines)
