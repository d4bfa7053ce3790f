"""Start-up, electrical and single-heater part: dark readings, noise, resistances, fringes."""

import logging

import numpy as np
from numpy.typing import NDArray

from calibration._curves import PhaseCurveFit, fit_phase_curve
from calibration._mesh_law import Law, combined_law
from calibration._resistance import fit_resistance
from calibration._session import Array, Session, allowed_power, allowed_total
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics.heaters import voltage_from_power

_log = logging.getLogger(__name__)

DARK_READINGS = 40
NOISE_READINGS = 60
RESISTANCE_LEVELS = 7
EXPECTED_RESISTANCE = (0.5, 2.0)
"""Resistances that a heater can have, relative to the nominal one of chip.yaml."""
OPEN_CURRENT = 0.01
"""Share of the median heater's current below which a heater takes none."""
FRINGE_POINTS = 14
FRINGE_PERIODS = 1.4
"""Length of a fringe sweep in nominal periods, so that 20 % weaker heaters still show more than a whole one."""
FRINGE_TRIES = 6
POWER_SHARE = 0.8
"""Part of the chip's total power limit that start-up sweeps may use."""
FIRST_SHARE = 0.8
"""Part of a heater's limits of power and current that is used before its resistance is known."""
CLEAR_CONTRAST = 60.0
"""Contrast at which a fringe is taken at once; below it the heater is tried again from other settings, since heat
that reaches bright neighbours can pass for a weak fringe."""
DARK_SHARE = 1e-3
"""Share of the brightest detector's light below which a detector is dead: the local oscillator reaches all of them."""
EFFICIENCY_WINDOW = (0.6, 1.5)
"""Searched efficiencies relative to the nominal one."""


_NO_FRINGE = PhaseCurveFit.rejected("never swept")


def measure_dark(session: Session) -> dict[str, Array]:
    """Read all detectors without light; leaves the light off.

    Returns
    -------
    dict
        ``dark_readings`` (repeats, 2n) in W.
    """
    raw = session.measure_dark(DARK_READINGS)
    session.dark_w = session.dark_w + raw.mean(axis=0)
    return {"dark_readings": raw}


def measure_noise(session: Session) -> dict[str, Array]:
    """Read one lit setting again and again.

    Returns
    -------
    dict
        ``noise_readings`` (repeats, 2n) in W, without the dark readings.
    """
    return {"noise_readings": session.measure(np.tile(random_powers(session), (NOISE_READINGS, 1)))}


def noise_model(dark_readings: Array, noise_readings: Array) -> NoiseModel:
    """Noise of a reading from repeats without and with light.

    Parameters
    ----------
    dark_readings
        Readings (repeats, 2n) without light in W.
    noise_readings
        Readings (repeats, 2n) at one setting with light in W, mean dark readings subtracted.

    Raises
    ------
    CalibrationError
        If there are fewer than two repeats, the light does not arrive, or it was there before it was switched on.
    """
    if min(len(dark_readings), len(noise_readings)) < 2:
        raise CalibrationError("the noise of a reading shows only in repeats; take at least two with and without light")
    dark, mean = dark_readings.mean(axis=0), noise_readings.mean(axis=0)
    floor = float(np.sqrt(np.mean(np.var(dark_readings, axis=0, ddof=1))))
    bright = mean > 10.0 * floor
    if not bright.any():
        raise CalibrationError("all detectors are dark although the light is on; check laser, shutter and fibres")
    if dark.sum() > 0.5 * (mean + dark).sum():
        raise CalibrationError(
            f"the detectors see {dark.sum():.3g} W with the light off and {(mean + dark).sum():.3g} W with it on; "
            "check the laser's shutter and shield stray light"
        )
    relative = _relative_noise(np.var(noise_readings, axis=0, ddof=1)[bright], mean[bright], floor)
    return NoiseModel(max(relative, np.finfo(float).eps), max(floor, np.finfo(float).tiny))


def _relative_noise(variance: Array, mean: Array, floor: float) -> float:
    """Relative noise common to all detectors; a dim one, whose noise is mostly the floor's, says little about it."""
    share = (floor / mean) ** 2
    squares = variance / mean**2 - share
    weight = 1.0 / (max(float(np.median(squares)), np.finfo(float).eps) + share) ** 2
    return float(np.sqrt(max(float(np.average(squares, weights=weight)), 0.0)))


def measure_resistances(session: Session) -> dict[str, Array]:
    """Step the heaters through voltages, in groups that respect the total power.

    The bench's nominal resistance chooses the voltages; leaves the heaters at zero.

    Returns
    -------
    dict
        ``resistance_voltage``, ``resistance_current`` (levels, H) in V and A, for `use_resistances`.
    """
    bench, heaters = session.bench, len(session.layout.heaters)
    nominal_ohm = bench.description.chip.nominal.resistance_ohm
    top = np.minimum(bench.max_power * FIRST_SHARE, FRINGE_PERIODS * session.period_w)
    top = np.minimum(top, (FIRST_SHARE * bench.interlock.max_current) ** 2 * nominal_ohm)
    groups = int(np.ceil(top.sum() / (POWER_SHARE * bench.max_total_power)))
    voltage = np.zeros((RESISTANCE_LEVELS, heaters))
    current = np.zeros((RESISTANCE_LEVELS, heaters))
    for group in range(groups):
        members = np.arange(group, heaters, groups)
        setting = np.zeros((RESISTANCE_LEVELS, heaters))
        share = np.arange(1, RESISTANCE_LEVELS + 1)[:, None] / RESISTANCE_LEVELS
        setting[:, members] = voltage_from_power(share * top[members], nominal_ohm, 0.0)
        found_voltage, found_current = session.measure_heaters(np.minimum(setting, 0.9 * bench.max_voltage))
        voltage[:, members], current[:, members] = found_voltage[:, members], found_current[:, members]
        session.progress("heater resistances", group + 1, groups)
    bench.set_voltages(np.zeros(heaters))
    return {"resistance_voltage": voltage, "resistance_current": current}


def use_resistances(session: Session, raw: dict[str, Array], known: Law | None = None) -> None:
    """Fit R(P) of every heater to what `measure_resistances` found, and give the laws to the session.

    With laws of an old record, those that the readings agree with are averaged with the new ones (`combined_law`).
    Stuck heaters of the layout, and in a bare mesh heaters that take no current, get the nominal resistance: no power
    comes of it, and the rest can be calibrated.

    Raises
    ------
    CalibrationError
        If another heater is open, shorted, far from chip.yaml's resistance (`EXPECTED_RESISTANCE`), or does not follow
        the law; all of them are named.
    """
    voltage, current = raw["resistance_voltage"], raw["resistance_current"]
    nominal = session.bench.description.chip.nominal.resistance_ohm
    expected = EXPECTED_RESISTANCE[0] * nominal, EXPECTED_RESISTANCE[1] * nominal
    idle = _idle(session, current)
    ohm, beta = np.full(len(idle), nominal), np.zeros(len(idle))
    covariance = np.full((len(idle), 2, 2), np.nan)
    complaints = []
    for heater in np.flatnonzero(~idle):
        name = session.layout.heaters[heater]
        try:
            fit = fit_resistance(current[:, heater], voltage[:, heater], expected_ohm=expected)
        except CalibrationError as error:
            complaints.append(f"{name}: {error}")
            continue
        ohm[heater], beta[heater], covariance[heater] = fit.resistance_ohm, fit.beta_per_w, fit.covariance
        if not fit.good:
            complaints.append(f"{name}: {fit.reason}")
    if complaints:
        message = "heaters without a usable resistance: " + "; ".join(complaints)
        _log.error("%s; the old resistances stay", message)
        raise CalibrationError(message)
    if known is not None:
        ohm, beta = combined_law(known, (ohm, beta), covariance, np.max(voltage * current, axis=0))
    session.resistance_ohm, session.beta_per_w = ohm, beta


def _idle(session: Session, current: Array) -> NDArray[np.bool_]:
    """Heaters (H,) that are never driven, or take no current and may be left out."""
    layout = session.layout
    size = np.abs(current).max(axis=0)
    without_current = layout.movable & (size < OPEN_CURRENT * np.median(size)) & layout.bare
    if without_current.any():
        _log.warning(
            "heaters that take no current: %s; their phases stand still, and the rest is calibrated",
            ", ".join(layout.heaters[h] for h in np.flatnonzero(without_current)),
        )
    return np.asarray(~layout.movable | without_current)


def measure_fringes(session: Session) -> dict[str, Array]:
    """Sweep every heater alone from a random setting, and again from others where its fringe is not clear.

    Returns
    -------
    dict
        ``fringe_power`` (H, points) in W and ``fringe_readings`` (H, points, 2n) in W of each heater's clearest sweep,
        for `use_fringes`.
    """
    heaters, detectors = len(session.layout.heaters), len(session.layout.detectors)
    power = np.zeros((heaters, FRINGE_POINTS))
    readings = np.zeros((heaters, FRINGE_POINTS, detectors))
    nominal, allowed = (
        session.efficiency.copy(),
        allowed_power(session.bench, session.resistance_ohm, session.beta_per_w),
    )
    best = [_NO_FRINGE] * heaters
    for _ in range(FRINGE_TRIES):
        base = random_powers(session)
        for heater in [h for h in range(heaters) if not _is_clear(best[h])]:
            session.power = base.copy()
            top = min(FRINGE_PERIODS * 2 * np.pi / nominal[heater], float(allowed[heater]))
            steps = np.linspace(0.0, top, FRINGE_POINTS)
            swept = session.sweep(np.array([heater]), steps[:, None])
            fit = _fringe(steps, swept, float(nominal[heater]))
            if (fit.good, fit.contrast) > (best[heater].good, best[heater].contrast):
                best[heater], power[heater], readings[heater] = fit, steps, swept
            session.progress("phase curves", sum(map(_is_clear, best)), heaters)
    return {"fringe_power": power, "fringe_readings": readings}


def use_fringes(session: Session, raw: dict[str, Array]) -> None:
    """Fit the efficiency of every heater to what `measure_fringes` found, and give them to the session.

    Raises
    ------
    CalibrationError
        If a detector stays dark or a heater shows no clear fringe; all of them are named.
    """
    brightest = raw["fringe_readings"].max(axis=(0, 1))
    dead = [session.layout.detectors[d] for d in np.flatnonzero(brightest < DARK_SHARE * brightest.max())]
    if dead:
        raise CalibrationError(
            f"no light on {', '.join(dead)} at any setting; check these photodiodes and their wiring"
        )
    sweeps = zip(raw["fringe_power"], raw["fringe_readings"], session.efficiency.tolist(), strict=True)
    fits = [_fringe(power, readings, nominal) for power, readings, nominal in sweeps]
    missing = [f"{session.layout.heaters[h]} ({fit.reason})" for h, fit in enumerate(fits) if not fit.good]
    if missing:
        message = f"no clear fringe for {'; '.join(missing)}"
        _log.error("%s; the old efficiencies stay", message)
        raise CalibrationError(f"{message}. Check wiring, laser power and the light's path to these heaters")
    session.efficiency = np.array([fit.efficiency for fit in fits])


def _is_clear(fit: PhaseCurveFit) -> bool:
    return fit.good and fit.contrast >= CLEAR_CONTRAST


def _fringe(power: Array, readings: Array, nominal: float) -> PhaseCurveFit:
    low, high = EFFICIENCY_WINDOW
    return fit_phase_curve(power, readings, efficiency_range=(low * nominal, high * nominal))


def random_powers(session: Session) -> Array:
    """Draw powers (H,) in W, uniform over one period of each heater and within the chip's total power."""
    power = session.rng.uniform(size=len(session.layout.heaters)) * session.period_w
    law = session.resistance_ohm, session.beta_per_w
    power = np.minimum(power, allowed_power(session.bench, *law))
    allowed = POWER_SHARE * allowed_total(session.bench, *law)
    return np.asarray(power * min(1.0, allowed / power.sum()))
