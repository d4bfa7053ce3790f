"""Electrical crosstalk: ground returns that heaters share, told apart from heat by the heaters' currents alone."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from calibration._arrays import floats, integers
from calibration._checks import require_whole
from calibration._electrical import FIRST_SHARE
from calibration._electrical_ground_fit import (
    FOUND_SIGMA,
    PARAMETERS,
    Groups,
    HeaterFit,
    Mutual,
    fit_heater,
    impossible_sigma,
    mutual_grounds,
    student_bound,
)
from calibration._leaving import dark_afterwards
from calibration._session import Array, Progress
from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import voltage_from_power

MAX_MISFIT = 3.0
"""Rms scatter of a group's heaters around their common resistance, over what they are known to, that is accepted."""
MAX_UNSEEN_LIFT = 0.05
"""A verdict "none" excludes returns that lift a heater's ground by more than this share of its own largest voltage."""
SPARE_SETTINGS = 10
"""Settings beyond one per heater from which groups are found."""
MIN_SETTINGS = 8
"""Fewest settings for known groups (a heater has five parameters)."""
_POWER_SHARE = 0.6


@dataclass(frozen=True)
class CommonGround:
    """Ground returns that heaters share.

    Parameters
    ----------
    resistance_ohm, sigma_ohm
        Resistance (groups,) of each group's ground return and its standard deviation in ohm; NaN and infinite for a
        heater alone, whose return is a part of its own resistance.
    groups
        Group (H,) of each heater, 0, 1, ...
    own_resistance_ohm, own_beta_per_w
        Law (H,) ``R0 (1 + beta P)`` of each heater without its return, in ohm and 1/W.
    heating_per_w, heating_sigma_per_w
        Relative growth (groups,) of a heater's resistance per W of the others' power in its group in 1/W: thermal
        crosstalk as resistances see it, and its standard deviation.
    misfit
        Rms scatter of the heaters around their groups' resistances over what they are known to.
    unseen_lift
        Largest share of a heater's own largest voltage by which a return that was not found can lift its ground at the
        currents of the readings (0.13 % chance of more); infinite where the readings tell nothing.
    verdict
        "found" if a ground resistance exceeds 6 standard deviations (`FOUND_SIGMA`); "none" if none does, and one that
        lifts a ground by more than `MAX_UNSEEN_LIFT` is excluded; "poor" if it is not, if the heaters of a group
        contradict each other (misfit beyond `MAX_MISFIT`), if heaters of different groups share a return, if a
        resistance is negative by more than 6 standard deviations (more with few settings), or if a heater's currents
        follow no law.
    reason
        What the verdict rests on.
    """

    resistance_ohm: Array
    sigma_ohm: Array
    groups: Groups
    own_resistance_ohm: Array
    own_beta_per_w: Array
    heating_per_w: Array
    heating_sigma_per_w: Array
    misfit: float
    unseen_lift: float
    verdict: Literal["found", "none", "poor"]
    reason: str

    def potential(self, current_a: ArrayLike) -> Array:
        """Return the potential (..., H) in V of each heater's ground return at currents (..., H) in A."""
        current = floats("current_a", current_a)
        member = self.groups[:, None] == np.arange(len(self.resistance_ohm))
        return np.asarray((current @ member * np.nan_to_num(self.resistance_ohm))[..., self.groups])

    def source_voltage(self, power_w: ArrayLike) -> Array:
        """Return the source voltages (..., H) in V at which the heaters take powers (..., H) in W."""
        power = floats("power_w", power_w)
        across = voltage_from_power(power, self.own_resistance_ohm, self.own_beta_per_w)
        current = np.where(across > 0.0, power / np.where(across > 0.0, across, 1.0), 0.0)
        return np.asarray(across + self.potential(current))


def fit_common_ground(
    voltage_v: ArrayLike, current_a: ArrayLike, groups: ArrayLike | None = None
) -> CommonGround:  # fmt: skip
    """Find the ground resistances that heaters share.

    A shared return lifts the ground of a heater by ``R_g sum I`` and lowers its current whether it is driven or not;
    heat of others lowers it in proportion to the current itself and to their powers.  Both are fitted beside each
    heater's own law ``R0 (1 + beta P)`` and the offset of its current reading, so each is what the other leaves.

    Parameters
    ----------
    voltage_v, current_a
        Readings (settings, H) in V and A while all voltages vary independently of each other.
    groups
        Group (H,) of each heater, 0, 1, ...; None finds them, which takes `SPARE_SETTINGS` more settings than heaters.
        Stated groups are believed: returns are looked for inside of them, and between them where the settings are as
        many as None takes.

    Raises
    ------
    CalibrationError
        If shapes differ, values are no finite numbers, there are too few settings, or a heater carries no current or
        its voltage does not vary.
    """
    voltage, current = _checked(voltage_v, current_a)
    settings, heaters = voltage.shape
    least = MIN_SETTINGS if groups is not None else heaters + SPARE_SETTINGS
    if settings < least:
        raise CalibrationError(
            f"{settings} settings of {heaters} heaters do not tell a common ground; take at least {least}"
            + ("" if groups is not None else f", or state the groups and take {MIN_SETTINGS}")
        )
    mutual = mutual_grounds(voltage, current) if settings >= heaters + SPARE_SETTINGS else None
    if groups is None and mutual is not None:
        return _combined(voltage, current, mutual.groups, mutual.lifts, mutual.objection)
    stated = _checked_groups(groups, heaters)
    return _combined(voltage, current, stated, _between(stated, mutual), _leak(stated, mutual))


def _between(stated: Groups, mutual: Mutual | None) -> Array:
    """Return the lifts (H,) of heaters alone in their groups: none, as stated, unless all of them are alone."""
    if np.bincount(stated).max() > 1:
        return np.zeros(len(stated))
    return np.full(len(stated), np.inf) if mutual is None else mutual.lifts


def _checked_groups(groups: ArrayLike | None, heaters: int) -> Groups:
    stated = integers("groups", groups if groups is not None else [])
    if stated.shape != (heaters,):
        raise CalibrationError(f"groups must be ({heaters},), got {stated.shape}")
    return np.asarray(np.unique(stated, return_inverse=True)[1], dtype=np.intp)


def _leak(stated: Groups, mutual: Mutual | None) -> str:
    """Say which heaters share a return although they are said not to, if any."""
    found = stated if mutual is None else mutual.groups
    for heater in range(len(found)):
        mates = np.flatnonzero((found == found[heater]) & (stated != stated[heater]))
        if mates.size:
            return f"heaters {heater} and {mates[0]} share a return, but are stated to be in different groups"
    return ""


def _checked(voltage_v: ArrayLike, current_a: ArrayLike) -> tuple[Array, Array]:
    voltage, current = floats("voltage_v", voltage_v), floats("current_a", current_a)
    if voltage.shape != current.shape or voltage.ndim != 2:
        raise CalibrationError(f"voltages and currents must be (settings, H), got {voltage.shape} and {current.shape}")
    if not (np.isfinite(voltage).all() and np.isfinite(current).all()):
        raise CalibrationError("voltage or current holds NaN or Inf, or is masked; leave such settings out of the fit")
    if not voltage.size:
        raise CalibrationError(f"voltages and currents of shape {voltage.shape} hold no readings; take some")
    idle = np.flatnonzero((np.ptp(voltage, axis=0) <= 0.0) | ((voltage * current).max(axis=0, initial=0.0) <= 0.0))
    if idle.size:
        raise CalibrationError(
            f"heaters {idle.tolist()} carry no current, or their voltages do not vary: leave them out or drive them"
        )
    return voltage, current


def _combined(voltage: Array, current: Array, groups: Groups, between: Array, objection: str) -> CommonGround:
    """Put the fits of a group's heaters together; ``between`` are the lifts (H,) of heaters alone in their groups."""
    count = int(groups.max()) + 1
    (ground, heating), sigma = np.full((2, count), np.nan), np.full((2, count), np.inf)
    lifts, scatter, free = np.zeros(count), 0.0, 0
    law = np.full((voltage.shape[1], 2), np.nan)
    for group in range(count):
        members = np.flatnonzero(groups == group)
        fits = _fits(voltage, current, members)
        law[members] = [np.full(2, np.nan) if fit is None else fit.values[:2] for fit in fits]
        if len(members) < 2:
            lifts[group] = between[members[0]]
            continue
        found = np.array([fit.values[3:] if fit is not None else np.zeros(2) for fit in fits])
        variance = np.array([fit.variance[3:] if fit is not None else np.full(2, np.inf) for fit in fits])
        (ground[group], heating[group]), sigma[:, group] = _weighted(found, variance)
        fitted = np.isfinite(variance[:, 0])
        scatter += float(np.sum((found[:, 0] - ground[group])[fitted] ** 2 / variance[fitted, 0]))
        free += max(int(fitted.sum()) - 1, 0)
        if not ground[group] > FOUND_SIGMA * sigma[0, group]:
            bound = max(ground[group], 0.0) + student_bound(len(voltage) - PARAMETERS) * sigma[0, group]
            weakest = float(np.abs(voltage[:, members]).max(axis=0).min())
            lifts[group] = bound * float(np.abs(current[:, members].sum(axis=1)).max()) / weakest
    misfit = float(np.sqrt(scatter / free)) if free else 0.0
    unseen = float(np.where(np.isnan(lifts), np.inf, lifts).max())
    objection = objection or _impossible(law, ground, sigma[0], len(voltage) - PARAMETERS)
    verdict, reason = _verdict(ground, sigma[0], misfit, unseen, objection)
    return CommonGround(
        ground, sigma[0], groups, law[:, 0], law[:, 1], heating, sigma[1], misfit, unseen, verdict, reason
    )


def _fits(voltage: Array, current: Array, members: Groups) -> list[HeaterFit | None]:
    """Fit the heaters of a group, each with the currents and powers of its mates."""
    power, fits = voltage * current, []
    for heater in members:
        mates = members[members != heater]
        sums = (current[:, mates].sum(axis=1), power[:, mates].sum(axis=1)) if mates.size else None
        fits.append(fit_heater(voltage[:, heater], current[:, heater], sums))
    return fits


def _weighted(found: Array, variance: Array) -> tuple[Array, Array]:
    """Weighted means (2,) and their standard deviations; NaN and infinite where nothing is known."""
    weight = 1.0 / variance
    total = np.sum(weight, axis=0)
    known = np.where(total > 0.0, total, np.nan)
    return np.sum(found * weight, axis=0) / known, np.where(total > 0.0, 1.0 / np.sqrt(known), np.inf)


def _impossible(law: Array, ground: Array, sigma: Array, freedom: int) -> str:
    """Say which heaters follow no law, or which return has a negative resistance, if any."""
    lawless = np.flatnonzero(np.isnan(law[:, 0])).tolist()
    if lawless:
        return f"the currents of heaters {lawless} follow no resistance law: noise hides it, or they are damaged"
    known = np.nan_to_num(ground)
    negative = np.flatnonzero(known < -impossible_sigma(freedom) * sigma)
    if not negative.size:
        return ""
    worst = int(negative[np.argmin(known[negative])])
    return (
        f"the return of group {worst} would have {ground[worst]:.3g} +- {sigma[worst]:.2g} ohm, which no circuit has: "
        "check the signs of currents, and leaks between channels"
    )


def _verdict(
    ground: Array, sigma: Array, misfit: float, unseen: float, objection: str
) -> tuple[Literal["found", "none", "poor"], str]:
    if objection:
        return "poor", objection
    if misfit > MAX_MISFIT:
        return "poor", (
            f"heaters of a group differ by {misfit:.3g} times what they are known to ({MAX_MISFIT:g} allowed): are the "
            "groups right?"
        )
    hidden = f"one that lifts a ground by {unseen:.2%} of its heater's voltage"
    strong = np.flatnonzero(np.nan_to_num(ground) > FOUND_SIGMA * sigma)
    if strong.size:
        largest = int(strong[np.argmax(ground[strong])])
        return "found", f"{strong.size} shared returns, up to {ground[largest]:.3g} +- {sigma[largest]:.2g} ohm"
    if not unseen <= MAX_UNSEEN_LIFT:
        return "poor", (
            f"{hidden} would not be seen ({MAX_UNSEEN_LIFT:.0%} allowed): let all voltages vary independently of each "
            "other, take more settings, or state which heaters share a return"
        )
    return "none", f"no shared return exceeds {FOUND_SIGMA:g} standard deviations; {hidden} or more is excluded"


def measure_common_ground(
    bench: Bench, rng: np.random.Generator, *, settings: int | None = None, progress: Progress | None = None
) -> dict[str, Array]:
    """Read all heaters at random voltages, a third of them at zero; leaves the chip dark and its heaters at zero.

    Needs no light, and lets none in.  Voltages respect the limits of every heater and the chip's total power.

    Parameters
    ----------
    bench
        An open bench.
    rng
        Source of the voltages.
    settings
        Number of settings, at least `MIN_SETTINGS`; None takes enough to find the groups.
    progress
        Called with (stage, done, total).

    Returns
    -------
    dict
        ``ground_voltage`` and ``ground_current`` (settings, H) in V and A, for `fit_common_ground`.

    Raises
    ------
    CalibrationError
        If ``settings`` is no whole number, or too small to fit anything.
    InstrumentError
        If an instrument fails.
    """
    if settings is not None:
        require_whole("settings", settings, MIN_SETTINGS)
    heaters = len(bench.layout.heaters)
    count = heaters + 2 * SPARE_SETTINGS if settings is None else settings
    nominal_ohm = bench.description.chip.nominal.resistance_ohm
    top = np.minimum(FIRST_SHARE * bench.max_power, (FIRST_SHARE * bench.max_current) ** 2 * nominal_ohm)
    top = np.minimum(top, _POWER_SHARE * bench.max_total_power)
    voltage, current = np.zeros((count, heaters)), np.zeros((count, heaters))
    with dark_afterwards(bench):
        for setting in range(count):
            power = top * rng.uniform(size=heaters) * (rng.uniform(size=heaters) > 1.0 / 3.0)
            power *= min(1.0, _POWER_SHARE * bench.max_total_power / max(float(power.sum()), 1e-300))
            bench.set_voltages(np.minimum(np.sqrt(power * nominal_ohm), 0.9 * bench.max_voltage))
            bench.settle()
            reading = bench.read_heaters()
            voltage[setting], current[setting] = reading.voltage_v, reading.current_a
            if progress is not None:
                progress("common ground", setting + 1, count)
    return {"ground_voltage": voltage, "ground_current": current}
