"""Sweeps of one heater, clean and hostile: does `calibration.fit_phase_curve` ever give a wrong value a good verdict?

``python benchmarks/phase_curves.py`` fits 4,000 hostile and 1,000 clean sweeps, ``--quick`` a tenth; ``--sweeps N``
sets the hostile ones; ``--json FILE`` writes the figures. The truth is known: a value is *wrong* if the efficiency is
off by more than 1 % and by more than 5 of its standard deviations, or the offset by more than 0.05 rad and 5 of its
own. A sweep without a fringe has no right value. Sweep ``i`` of a family and a seed is the same on every machine.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from _harness import at_least, at_most, conclude, figure, row_table
from threadpoolctl import threadpool_limits

TWO_PI = 2.0 * np.pi
SIGMAS, RELATIVE, RADIANS = 5.0, 0.01, 0.05
OUTCOMES = ("right, good", "right, refused", "wrong, good", "wrong, refused")


@dataclass
class Sweep:
    """A sweep under construction: places x from 0 to 1, readings in units of the fringe, the truth.

    Phase ``= offset + turns x + bow x (x - 1)``; ``other`` is the phase of a second fringe that turns by less than a
    period more or less: the two are one fringe to any fit, whose efficiency may lie anywhere between.  A fault changes
    the readings or what is believed about the powers.
    """

    x: np.ndarray
    y: np.ndarray
    turns: float
    bow: float
    offset: np.ndarray
    noise: float
    has_fringe: bool = True
    other: float = np.nan
    start: float = 0.0
    power_scale: float = 0.04
    reading_scale: float = 1e-6

    @property
    def phase(self):
        return self.turns * self.x + self.bow * self.x * (self.x - 1.0)

    def arrays(self):
        readings = self.reading_scale * self.y
        return self.power_scale * (self.x + self.start), readings[:, 0] if readings.shape[1] == 1 else readings


def log_uniform(rng, low, high):
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def plain(rng, periods, points, noise, detectors=1):
    """A fringe with noise; steps even in power, in voltage, or (where dense enough) anyhow."""
    x = np.linspace(0.0, 1.0, points)
    if rng.uniform() < 0.3 and points > 6 * periods:
        x = np.sqrt(x) if rng.uniform() < 0.3 else x**2
    offset = rng.uniform(0.0, TWO_PI, detectors)
    size = np.append(1.0, rng.uniform(0.05, 1.0, detectors - 1))
    y = rng.uniform(1.0, 3.0, detectors) + size * np.cos(TWO_PI * periods * x[:, None] + offset)
    sweep = Sweep(x, y, TWO_PI * periods, 0.0, offset, noise, start=0.0 if rng.uniform() < 0.8 else rng.uniform(0, 1))
    return replace(sweep, power_scale=log_uniform(rng, 1e-3, 1.0), reading_scale=log_uniform(rng, 1e-9, 1.0))


def noisy(rng, sweep):
    return replace(sweep, y=sweep.y + sweep.noise * rng.standard_normal(sweep.y.shape))


def clean(rng):
    periods = log_uniform(rng, 0.6, 3.0) if rng.uniform() < 0.7 else log_uniform(rng, 3.0, 20.0)
    least = max(8, int(np.ceil(3.0 * periods + 2)))
    sweep = plain(rng, periods, int(rng.integers(least, max(least + 1, 60))), rng.choice([0.0, 1e-3, 3e-3, 1e-2]))
    return noisy(rng, in_any_order(rng, sweep) if rng.uniform() < 0.2 else sweep)


def any_fringe(rng, periods=None, points=None, noise=None):
    if periods is None:
        periods = log_uniform(rng, 0.4, 3.0) if rng.uniform() < 0.7 else log_uniform(rng, 3.0, 20.0)
    least = max(8, int(np.ceil(2.5 * periods + 2)))
    points = points or int(rng.integers(least, max(least + 1, 60)))
    noise = log_uniform(rng, 1e-3, 0.05) * (rng.uniform() > 0.1) if noise is None else noise
    return plain(rng, periods, max(points, least), noise, int(rng.choice([1, 1, 1, 2, 5])))


# Faults before noise.


def second_fringe(rng, sweep):
    turns = min(sweep.turns * log_uniform(rng, 0.3, 3.0), TWO_PI * 0.4 * len(sweep.x))
    phases = rng.uniform(0.0, TWO_PI, sweep.y.shape[1])
    y = sweep.y + log_uniform(rng, 0.02, 0.45) * np.cos(turns * sweep.x[:, None] + phases)
    return replace(sweep, y=y, other=turns if abs(turns - sweep.turns) < TWO_PI else np.nan)


def harmonics(rng, sweep):
    """A second or third harmonic that the points can tell from the fringe itself."""
    most = 0.4 * len(sweep.x) / (sweep.turns / TWO_PI)
    order = int(rng.choice([2, 2, 3])) if most > 3.0 else 2
    if most < 2.0:
        return sweep
    phases = rng.uniform(0.0, TWO_PI, sweep.y.shape[1])
    return replace(sweep, y=sweep.y + log_uniform(rng, 0.003, 0.1) * np.cos(order * sweep.phase[:, None] + phases))


def heated_neighbour(rng, sweep):
    """Another phase turns by 1 to 10 % of the heater's own, seen with up to the same amplitude."""
    turns, detectors = sweep.turns * rng.uniform(0.01, 0.1), sweep.y.shape[1]
    slow = np.cos(turns * sweep.x[:, None] + rng.uniform(0.0, TWO_PI, detectors))
    return replace(sweep, y=sweep.y + rng.uniform(0.0, 1.0, detectors) * slow)


def fading_light(rng, sweep):
    return replace(sweep, y=sweep.y * (1.0 + rng.uniform(-0.15, 0.15) * sweep.x[:, None]))


def compressed(rng, sweep):
    return replace(sweep, y=sweep.y / (1.0 + log_uniform(rng, 0.01, 0.2) * sweep.y))


def growing_resistance(rng, sweep):
    """The power is reckoned with a constant resistance that really changes by up to 30 % over the sweep."""
    bow = rng.uniform(-0.2, 0.2) * sweep.turns
    old, new = sweep.phase[:, None], (sweep.phase + bow * sweep.x * (sweep.x - 1.0))[:, None]
    turned = sweep.y - np.cos(old + sweep.offset) + np.cos(new + sweep.offset)
    return replace(sweep, y=turned[:, :1], offset=sweep.offset[:1], bow=bow)


def in_any_order(rng, sweep):
    order = np.arange(len(sweep.x))[::-1] if rng.uniform() < 0.5 else rng.permutation(len(sweep.x))
    return replace(sweep, x=sweep.x[order], y=sweep.y[order])


def drift(rng, sweep):
    sweep = in_any_order(rng, sweep) if rng.uniform() < 0.3 else sweep
    time_ = np.linspace(0.0, 1.0, len(sweep.x))
    course = time_ if rng.uniform() < 0.5 else np.exp(-time_ / rng.uniform(0.05, 0.5))
    return replace(sweep, y=sweep.y + rng.uniform(-0.5, 0.5) * course[:, None])


def hysteresis(rng, sweep):
    """Half of the points are taken on the way back, with a phase that lags; one detector."""
    lag = log_uniform(rng, 0.005, 0.5) * np.where(np.arange(len(sweep.x)) % 2, 0.5, -0.5)
    y = sweep.y[:, :1] - np.cos(sweep.phase + sweep.offset[0])[:, None]
    return replace(sweep, y=y + np.cos(sweep.phase + sweep.offset[0] + lag)[:, None], offset=sweep.offset[:1])


def rounded_voltages(rng, sweep):
    """The converter rounds the voltages to 6 to 12 bits, the powers are the asked ones; one detector."""
    steps = 2.0 ** rng.integers(6, 13)
    true = (np.round(np.sqrt(sweep.x) * steps) / steps) ** 2
    y = sweep.y[:, :1] - np.cos(sweep.phase + sweep.offset[0])[:, None]
    return replace(sweep, y=y + np.cos(sweep.turns * true + sweep.offset[0])[:, None], offset=sweep.offset[:1])


def uneven(rng, sweep):
    x = np.sort(rng.uniform(0.0, 1.0, len(sweep.x)))
    x = (x - x[0]) / (x[-1] - x[0])
    y = sweep.y[:, :1] * 0.0 + 2.0 + np.cos(sweep.turns * x + sweep.offset[0])[:, None]
    return replace(sweep, x=x, y=y, offset=sweep.offset[:1])


# Faults after noise.


def clipped(rng, sweep):
    y, share = sweep.y.copy(), rng.uniform(0.6, 0.97)
    for column in y.T:
        column[:] = np.minimum(column, np.quantile(column, share))
    return replace(sweep, y=y)


def clipped_below(rng, sweep):
    y, share = sweep.y.copy(), rng.uniform(0.03, 0.4)
    for column in y.T:
        column[:] = np.maximum(column, np.quantile(column, share))
    return replace(sweep, y=y)


def one_clipped(rng, sweep):
    y = sweep.y.copy()
    for column in y.T:
        last, next_ = np.argsort(-column if rng.uniform() < 0.5 else column)[:2]
        column[last] += rng.uniform() * (column[next_] - column[last])
    return replace(sweep, y=y)


def outliers(rng, sweep):
    y = sweep.y.copy()
    for _ in range(int(rng.integers(1, 2 + len(y) // 12))):
        y[rng.integers(len(y)), rng.integers(y.shape[1])] += rng.choice([-1, 1]) * rng.choice([0.1, 0.3, 1, 5, 1e6])
    return replace(sweep, y=y)


def coarse_readings(rng, sweep):
    step = 4.0 / 2.0 ** rng.integers(4, 11)
    return replace(sweep, y=np.round(sweep.y / step) * step)


def invalid(rng, sweep):
    y, x = sweep.y.copy(), sweep.x.copy()
    for _ in range(int(rng.integers(1, 4))):
        y[rng.integers(len(y)), rng.integers(y.shape[1])] = rng.choice([np.nan, np.inf, -np.inf])
    return replace(sweep, x=x, y=y)


def dead(rng, sweep):
    """Nothing depends on the power: noise, a drift of the light, or one level."""
    shape, kind = sweep.y.shape, rng.integers(3)
    if kind == 0:
        return replace(sweep, y=rng.standard_normal(shape), has_fringe=False)
    course = np.cumsum(rng.standard_normal(shape), axis=0) if kind == 1 else np.full(shape, rng.choice([0.0, 1.0]))
    return replace(sweep, y=course, has_fringe=False)


BEFORE = {
    "second fringe": second_fringe, "harmonics": harmonics, "heated neighbour": heated_neighbour,
    "fading light": fading_light, "compressed detector": compressed, "growing resistance": growing_resistance,
    "any order": in_any_order, "drift": drift, "hysteresis": hysteresis, "rounded voltages": rounded_voltages,
    "uneven steps": uneven,
}  # fmt: skip
AFTER = {
    "clipped above": clipped, "clipped below": clipped_below, "one clipped reading": one_clipped, "outliers": outliers,
    "coarse readings": coarse_readings, "invalid readings": invalid, "no fringe": dead,
}  # fmt: skip


def too_short(rng):
    return noisy(rng, any_fringe(rng, periods=log_uniform(rng, 0.05, 0.6)))


def few_points(rng):
    periods = log_uniform(rng, 0.4, 2.5)
    return noisy(rng, any_fringe(rng, periods=periods, points=int(rng.integers(8, 12))))


def much_noise(rng):
    return noisy(rng, any_fringe(rng, noise=log_uniform(rng, 0.03, 0.5)))


def several(rng):
    """Two faults at once."""
    before, after = rng.choice(list(BEFORE)), rng.choice([name for name in AFTER if name != "no fringe"])
    return AFTER[after](rng, noisy(rng, BEFORE[before](rng, any_fringe(rng))))


def with_fault(name):
    if name in BEFORE:
        return lambda rng: noisy(rng, BEFORE[name](rng, any_fringe(rng)))
    return lambda rng: AFTER[name](rng, noisy(rng, any_fringe(rng)))


HOSTILE = {name: with_fault(name) for name in (*BEFORE, *AFTER)} | {
    "too short": too_short, "few points": few_points, "much noise": much_noise, "several faults": several,
}  # fmt: skip


def outcome(sweep, fit):
    """Whether the value is right, and the verdict."""
    turns = sweep.turns
    if not sweep.has_fringe:
        return OUTCOMES[2 if fit.good else 1]
    used = np.isfinite(sweep.y).any(axis=1)
    low, high = sweep.x[used].min(), sweep.x[used].max()
    turns += sweep.bow * (low + high - 1.0)
    value, merged = fit.efficiency * sweep.power_scale, np.isfinite(sweep.other)
    nearest = np.clip(value, *sorted((turns, sweep.other))) if merged else turns
    wrong = not abs(value - nearest) <= max(SIGMAS * fit.efficiency_sigma * sweep.power_scale, RELATIVE * turns)
    if fit.detector >= 0 and not merged:
        phase = sweep.offset[min(fit.detector, len(sweep.offset) - 1)] - sweep.turns * sweep.start
        phase += sweep.bow * sweep.start * (sweep.start + 1.0)
        error = abs(np.angle(np.exp(1j * (fit.offset - phase))))
        wrong |= not error <= max(SIGMAS * fit.offset_sigma, RADIANS)
    return OUTCOMES[2 * wrong + (not fit.good)]


def attack(fit_phase_curve: Callable, make, number, seed, count, show=""):
    """Fit ``count`` sweeps of a family; ``show`` prints those with an outcome that begins so."""
    found = Counter()
    for index in range(count):
        sweep = make(np.random.default_rng((seed, number, index)))
        fit = fit_phase_curve(*sweep.arrays())
        result = outcome(sweep, fit)
        found[result] += 1
        if show and result.startswith(show):
            print(
                f"  {index}: {sweep.turns / TWO_PI:.3g} periods, {len(sweep.x)} points, noise {sweep.noise:.2g}, "
                f"{sweep.y.shape[1]} detectors: {fit.efficiency * sweep.power_scale / sweep.turns:.4f} "
                f"+- {fit.efficiency_sigma / fit.efficiency:.2g}, contrast {fit.contrast:.3g}, {fit.terms}, "
                f"{fit.reason}"
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Attack fit_phase_curve with clean and hostile sweeps.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sweeps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweeps", type=int, default=4000, help="hostile sweeps; a quarter as many clean ones")
    parser.add_argument("--family", help="only this family")
    parser.add_argument(
        "--show", default="", metavar="OUTCOME", help='print sweeps whose outcome begins so: "wrong, good"'
    )
    arguments = parser.parse_args()
    sys.path[:0] = [str(Path(__file__).parents[1])]  # before this folder, which has a calibration.py of its own
    from calibration import fit_phase_curve

    threadpool_limits(1)
    sweeps = arguments.sweeps // (10 if arguments.quick else 1)
    each = -(-sweeps // len(HOSTILE))
    families = {"clean": (clean, max(1, sweeps // 4))} | {name: (make, each) for name, make in HOSTILE.items()}
    totals, rows, started = Counter(), [], time.process_time()
    print(f"{'family':20}" + "".join(f"{name:>17}" for name in OUTCOMES))
    for number, (name, (make, count)) in enumerate(families.items()):
        if arguments.family not in (None, name):
            continue
        found = attack(fit_phase_curve, make, number, arguments.seed, count, arguments.show)
        print(f"{name:20}" + "".join(f"{found[result]:>17}" for result in OUTCOMES), flush=True)
        if name == "clean":
            rows.append(at_least(f"{count} clean sweeps, right, good", 100 * found["right, good"] / count, "%", 99.5))
            rows.append(at_most(f"{count} clean sweeps, wrong, good", found["wrong, good"], "", 0))
        else:
            totals += found
    fits = sum(totals.values())
    if fits:
        rows.append(at_most(f"{fits} hostile sweeps, wrong, good", totals["wrong, good"], "", 0))
        others = ("right, good", "right, refused", "wrong, refused")
        rows += [figure(f"hostile sweeps, {result}", 100 * totals[result] / fits, "%") for result in others]
    rows.append(figure("CPU time of a fit", 1e3 * (time.process_time() - started) / max(fits + sweeps // 4, 1), "ms"))
    print(row_table(rows))
    conclude(rows, arguments.json)


if __name__ == "__main__":
    main()
