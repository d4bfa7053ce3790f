"""Discovery before any map is known: resistances, dark levels, noise, settling, and whether the light is right."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from calibration._discovery_analysis import dead_outputs
from calibration._discovery_resistances import allowed_voltage, read_resistances
from calibration._session import Array
from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError

ElectricalState = Literal["ok", "open", "short", "stuck"]
OPEN_RATIO, SHORT_RATIO = 10.0, 0.1
"""Resistances above and below these multiples of the typical one are breaks and shorts."""
NOMINAL_RATIO = 3.0
"""Largest ratio of the typical resistance to chip.yaml's nominal one, or the other way round, that is believed."""
OPEN_CURRENT = 0.02
"""Share of the upper quartile's current below which no current flows but that of the meter's zero."""
ODD_SPREAD = 0.2
"""Resistances further than this from the typical one are reported; such heaters are used."""
TEST_SHARE = 0.3
"""Part of each heater's voltage limit at which resistances are measured."""
DARK_READINGS, NOISE_READINGS = 20, 30
STEP_READINGS = 60
"""Readings after a step of all heaters."""
LIGHT_RATIO = 3.0
"""Light is there if the brightest detector reads this many times more with it than its dark level's spread."""
LEAST_VALID = 2
"""Valid readings that a level and its spread need."""


@dataclass(frozen=True)
class Settling:
    """How a detector follows a step of the heaters.

    Parameters
    ----------
    time_constant_s
        Time constant (n,) of an exponential in s; 0 where it was over before the first reading, NaN without a step.
    left_over
        Part (n,) of the step that the settling time of chip.yaml leaves.
    """

    time_constant_s: Array
    left_over: Array


@dataclass(frozen=True)
class ElectricalFindings:
    """What electrical discovery found.

    Parameters
    ----------
    resistance_ohm
        Of each channel (H,); infinite where no current flows, 0 where the driver ran into its limit at a voltage that
        1 ohm allows, NaN for stuck phases.
    state
        "ok", "open" or "short" for each channel; "stuck" for those of stuck phases (mesh.stuck), which are not driven.
    dark_w, dark_noise_w
        Mean and standard deviation (n,) of valid readings without light in W; 0 and the usual one of detectors with
        fewer than two.
    relative_noise
        Noise (n,) of readings with light relative to them, dark noise taken off; NaN for dark detectors.
    settling
        How readings follow the heaters.
    complaints
        What is wrong with light, noise or settling, with a remedy each; empty if nothing.
    """

    resistance_ohm: Array
    state: tuple[ElectricalState, ...]
    dark_w: Array
    dark_noise_w: Array
    relative_noise: Array
    settling: Settling
    complaints: tuple[str, ...]


def judge_resistances(
    voltage_v: Array, current_a: Array, nominal_ohm: float | None = None
) -> tuple[Array, tuple[ElectricalState, ...]]:
    """Judge resistances in ohm of heaters at voltages (H,) in V and currents (H,) in A: open, shorted or fine.

    Open and shorted are judged against the median of the heaters that take current, which counts up to `NOMINAL_RATIO`
    from a nominal resistance in ohm, if one is given: many shorts must not pass for what is usual.

    Raises
    ------
    CalibrationError
        If no heater takes current.
    """
    size = np.abs(current_a)
    flows = (size > 1e-9) & (size > OPEN_CURRENT * float(np.quantile(size, 0.75))) if len(size) else size > 0.0
    if not flows.any():
        raise CalibrationError("no heater takes current; check that the heater drivers are connected and their limits")
    ohm = np.where(flows, voltage_v / np.where(flows, current_a, 1.0), np.inf)
    typical = float(np.median(ohm[flows]))
    if nominal_ohm is not None:
        typical = float(np.clip(typical, nominal_ohm / NOMINAL_RATIO, nominal_ohm * NOMINAL_RATIO))
    states = []
    for value in ohm.tolist():
        state: ElectricalState = "ok"
        if value > OPEN_RATIO * typical:
            state = "open"
        elif value < SHORT_RATIO * typical:
            state = "short"
        states.append(state)
    return ohm, tuple(states)


def fit_settling(time_s: Array, readings: Array, noise_w: Array, settle_s: float) -> Settling:
    """Fit exponentials to readings after a step.

    Parameters
    ----------
    time_s
        Times (B,) in s after the step, rising.
    readings
        Readings (B, n) in W; NaN where invalid, and a detector of which half of them are is left out.
    noise_w
        Noise (n,) of one reading in W.
    settle_s
        The settling time that chip.yaml states, s.
    """
    constant, left = np.zeros(readings.shape[1]), np.zeros(readings.shape[1])
    for d, column in enumerate(readings.T):
        valid = np.isfinite(column)
        if 2 * valid.sum() < len(valid):
            constant[d] = left[d] = np.nan
            continue
        time, read = time_s[valid], column[valid]
        final = float(np.median(read[-max(3, len(read) // 6) :]))
        step = np.abs(read - final)
        if step[0] < 6.0 * max(float(noise_w[d]), 1e-3 * abs(final)):
            continue
        seen = step > 3.0 * max(float(noise_w[d]), 0.02 * float(step[0]))
        until = int(np.argmin(seen)) if not seen.all() else len(seen)
        if until >= 2:
            slope = np.polyfit(time[:until], np.log(step[:until]), 1)[0]
            constant[d] = max(-1.0 / slope, 0.0) if slope < 0.0 else np.inf
            left[d] = float(np.exp(-settle_s / constant[d])) if constant[d] > 0.0 else 0.0
    return Settling(constant, left)


def discover_electrical(bench: Bench, lit: int = 0) -> ElectricalFindings:
    """Measure what needs no map: resistances, dark levels, noise, settling, light.  Leaves the chip dark and cold.

    Parameters
    ----------
    bench
        An open bench of a bare mesh.
    lit
        Port that is lit for noise and settling; the next one where no detector sees its light.

    Raises
    ------
    CalibrationError
        If no heater takes current, no detector sees light, or none gives valid readings in the dark.
    InstrumentError
        If an instrument fails.
    """
    zero = np.zeros(len(bench.layout.heaters))
    bench.light(on=False)
    bench.set_voltages(zero)
    bench.settle()
    dark, noise = _dark_levels(bench)
    ohm, state = _resistances(bench)
    level = _step_voltage(bench, ohm, state)
    bench.light(on=True)
    unlit = []
    for port in np.roll(np.arange(bench.layout.ports), -lit).tolist():
        settling, bright, spread = _followed(bench, port, level, noise)
        mean = bright - dark
        if (mean > LIGHT_RATIO * noise).any():
            break
        unlit.append(port)
        bench.set_voltages(zero)
        bench.settle()
    else:
        raise CalibrationError(
            "no detector sees light from any input port although the laser was switched on; check laser, shutter, "
            "switch, fibres, and that the meters' readings are live"
        )
    bench.light(on=False)
    bench.set_voltages(zero)
    excess = np.sqrt(np.maximum(spread**2 - noise**2, 0.0))
    relative = np.where(mean > 10.0 * noise, excess / np.where(mean > 0.0, mean, 1.0), np.nan)
    complaints = (*_odd(bench, ohm, state), *_light(bench, mean, noise, unlit), *_slow(bench, settling))
    return ElectricalFindings(ohm, state, dark, noise, relative, settling, complaints)


def _dark_levels(bench: Bench) -> tuple[Array, Array]:
    """Means and standard deviations (n,) in W without light.

    Of detectors with too few valid readings, which may be dead or below their range, 0 and what is usual.
    """
    dark, noise = _mean_and_spread(_repeated(bench, DARK_READINGS))
    known = np.isfinite(noise)
    if not known.any():
        raise CalibrationError(
            f"no detector gives {LEAST_VALID} valid readings out of {DARK_READINGS} without light; choose ranges of "
            "the meters in which 0 W is valid, and check that they are connected"
        )
    return np.where(known, dark, 0.0), np.where(known, noise, np.median(noise[known]))


def _step_voltage(bench: Bench, ohm: Array, state: tuple[ElectricalState, ...]) -> Array:
    """Voltages (H,) in V of a step of all sound heaters, half of the total power limit at most."""
    usable = np.array([one == "ok" for one in state])
    level = np.where(usable, np.minimum(TEST_SHARE * bench.max_voltage, allowed_voltage(bench, ohm)), 0.0)
    drawn = float((level**2 / np.where(usable, ohm, 1.0)).sum())
    return np.asarray(level * min(1.0, np.sqrt(0.5 * bench.max_total_power / max(drawn, 1e-12))))


def _followed(bench: Bench, port: int, level: Array, noise: Array) -> tuple[Settling, Array, Array]:
    """Light a port, step all heaters, and follow the detectors: settling, then means and spreads (n,) in W."""
    bench.light_port(port)
    bench.set_voltages(level)
    start = bench.clock.now()
    rows, times = [], []
    for _ in range(STEP_READINGS):
        reading = bench.read_detectors()
        times.append(bench.clock.now() - start)
        rows.append(np.where(reading.valid, reading.power_w, np.nan))
    bench.settle()
    bright, spread = _mean_and_spread(_repeated(bench, NOISE_READINGS))
    settle_s = bench.description.chip.settling.settle_s
    return fit_settling(np.array(times), np.stack(rows), np.fmax(spread, noise), settle_s), bright, spread


def _repeated(bench: Bench, count: int) -> Array:
    rows = []
    for _ in range(count):
        reading = bench.read_detectors()
        rows.append(np.where(reading.valid, reading.power_w, np.nan))
    return np.stack(rows)


def _mean_and_spread(rows: Array) -> tuple[Array, Array]:
    """Mean and standard deviation (n,) of valid readings (B, n), NaN of fewer than `LEAST_VALID`."""
    mean, spread = np.full(rows.shape[1], np.nan), np.full(rows.shape[1], np.nan)
    for d, column in enumerate(rows.T):
        valid = column[np.isfinite(column)]
        if len(valid) >= LEAST_VALID:
            mean[d], spread[d] = valid.mean(), valid.std(ddof=1)
    return mean, spread


def _resistances(bench: Bench) -> tuple[Array, tuple[ElectricalState, ...]]:
    read = read_resistances(bench, TEST_SHARE * bench.max_voltage)
    movable = bench.layout.movable
    ohm = np.where(movable, 0.0, np.nan)
    state: list[ElectricalState] = ["short" if one else "stuck" for one in movable]
    measured = np.flatnonzero(movable & ~read.refused)
    nominal = bench.description.chip.nominal.resistance_ohm
    ohm[measured], judged = judge_resistances(read.voltage_v[measured], read.current_a[measured], nominal)
    for k, one in zip(measured, judged, strict=True):
        state[k] = one
    return ohm, tuple(state)


def _odd(bench: Bench, ohm: Array, state: tuple[ElectricalState, ...]) -> list[str]:
    fine = np.array([one == "ok" for one in state])
    typical = float(np.median(ohm[fine])) if fine.any() else float("nan")
    odd = np.flatnonzero(fine & (np.abs(ohm / typical - 1.0) > ODD_SPREAD))
    return [
        f"{bench.layout.heaters[k]}: {ohm[k]:.4g} ohm where {typical:.4g} ohm is typical; check its wiring" for k in odd
    ]


def _light(bench: Bench, mean: Array, noise: Array, unlit: list[int]) -> list[str]:
    chip = bench.description.chip
    asked = 1e-3 * 10.0 ** (chip.laser.power_dbm / 10.0)
    total = float(np.nansum(np.maximum(mean, 0.0)))
    loss_db = -10.0 * np.log10(max(total, 1e-300) / asked)
    found = [f"input port {port}: no detector sees its light; check its fibre and the switch" for port in unlit]
    if loss_db > 40.0 or loss_db < 0.0:
        found.append(
            f"the detectors together see {total:.3g} W of {asked:.3g} W from the laser ({loss_db:.1f} dB loss); check "
            "the laser's power, the meters' wavelength and the couplers"
        )
    dead = np.flatnonzero(dead_outputs(mean[None]))
    return found + [
        f"{bench.layout.detectors[d]}: dark in this setting" for d in dead if mean[d] < LIGHT_RATIO * noise[d]
    ]


def _slow(bench: Bench, settling: Settling) -> list[str]:
    worst = float(np.nanmax(settling.left_over, initial=0.0))
    if worst < 0.01:
        return []
    slowest = float(np.nanmax(settling.time_constant_s))
    return [
        f"settling.settle_s = {bench.description.chip.settling.settle_s:g} s leaves {worst:.0%} of a step: readings "
        f"follow the heaters with {slowest:.3g} s; write settle_s: {5.0 * slowest:.2g} into chip.yaml"
    ]
