"""Electrical crosstalk: ground returns that heaters share, told apart from heat by the heaters' currents alone."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration._resistance import Array, current_and_slopes
from calibration._session import Progress
from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import voltage_from_power

Groups = NDArray[np.intp]

FOUND_SIGMA = 6.0
"""A ground resistance counts as found from so many standard deviations."""
MAX_MISFIT = 3.0
"""Rms scatter of a group's heaters around their common resistance, over what they are known to, that is accepted."""
SPARE_SETTINGS = 10
"""Settings beyond one per heater from which groups are found."""
MIN_SETTINGS = 8
"""Fewest settings for known groups (a heater has five parameters)."""
_PARAMETERS = 5
_STEPS = 12
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
    verdict
        "found" if a ground resistance exceeds `FOUND_SIGMA` standard deviations, "none" if none does, "poor" if the
        heaters of a group contradict each other (misfit beyond `MAX_MISFIT`), or heaters of different groups share one.
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
    verdict: Literal["found", "none", "poor"]
    reason: str

    def potential(self, current_a: ArrayLike) -> Array:
        """Return the potential (..., H) in V of each heater's ground return at currents (..., H) in A."""
        current = np.asarray(current_a, float)
        member = self.groups[:, None] == np.arange(len(self.resistance_ohm))
        return np.asarray((current @ member * np.nan_to_num(self.resistance_ohm))[..., self.groups])

    def source_voltage(self, power_w: ArrayLike) -> Array:
        """Return the source voltages (..., H) in V at which the heaters take powers (..., H) in W."""
        power = np.asarray(power_w, float)
        across = voltage_from_power(power, self.own_resistance_ohm, self.own_beta_per_w)
        current = np.where(across > 0.0, power / np.where(across > 0.0, across, 1.0), 0.0)
        return np.asarray(across + self.potential(current))


@dataclass(frozen=True)
class _Heater:
    """Fit of one heater: R0, beta, offset, ground resistance, heating; their covariance; weights of its readings."""

    values: Array
    covariance: Array
    slope: Array
    residual: Array
    basis: Array


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

    Raises
    ------
    CalibrationError
        If shapes differ, values are not finite, there are too few settings, or a heater carries no current or its
        voltage does not vary.
    """
    voltage, current = _checked(voltage_v, current_a)
    settings, heaters = voltage.shape
    least = MIN_SETTINGS if groups is not None else heaters + SPARE_SETTINGS
    if settings < least:
        raise CalibrationError(
            f"{settings} settings of {heaters} heaters do not tell a common ground; take at least {least}"
            + ("" if groups is not None else f", or state the groups and take {MIN_SETTINGS}")
        )
    if groups is None:
        return _combined(voltage, current, _found_groups(voltage, current), "")
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    if member.shape != (heaters,):
        raise CalibrationError(f"groups must be ({heaters},), got {np.shape(groups)}")
    leak = _leak(_found_groups(voltage, current), member) if settings >= heaters + SPARE_SETTINGS else ""
    return _combined(voltage, current, np.asarray(member, dtype=np.intp), leak)


def _leak(found: Groups, stated: Groups) -> str:
    """Say which heaters share a return although they are said not to, if any."""
    for heater in range(len(found)):
        mates = np.flatnonzero((found == found[heater]) & (stated != stated[heater]))
        if mates.size:
            return f"heaters {heater} and {mates[0]} share a return, but are stated to be in different groups"
    return ""


def _checked(voltage_v: ArrayLike, current_a: ArrayLike) -> tuple[Array, Array]:
    voltage, current = np.asarray(voltage_v, float), np.asarray(current_a, float)
    if voltage.shape != current.shape or voltage.ndim != 2:
        raise CalibrationError(f"voltages and currents must be (settings, H), got {voltage.shape} and {current.shape}")
    if not (np.isfinite(voltage).all() and np.isfinite(current).all()):
        raise CalibrationError("voltage or current holds NaN or Inf; leave invalid settings out of the fit")
    idle = np.flatnonzero((np.ptp(voltage, axis=0) <= 0.0) | ((voltage * current).max(axis=0, initial=0.0) <= 0.0))
    if idle.size:
        raise CalibrationError(
            f"heaters {idle.tolist()} carry no current, or their voltages do not vary: leave them out or drive them"
        )
    return voltage, current


def _fit_heater(voltage: Array, current: Array, others: tuple[Array, Array] | None) -> _Heater:
    """Gauss-Newton fit of one heater's currents (settings,).

    ``others`` are the sums (settings,) of the currents and powers of its group's other heaters; without them only its
    own law and the offset are fitted.
    """
    driven = voltage > 0.2 * voltage.max()
    start = float(np.median(voltage[driven] / np.where(current[driven] > 0.0, current[driven], np.nan)))
    values = np.array([start, 0.0, 0.0, 0.0, 0.0])
    count = _PARAMETERS if others is not None else 3
    sums = others if others is not None else (np.zeros_like(voltage),) * 2
    for _ in range(_STEPS):
        predicted, jacobian, _ = _predicted(values, voltage, current, *sums)
        scale = np.maximum(np.linalg.norm(jacobian[:, :count], axis=0), 1e-300)
        solved, *_ = np.linalg.lstsq(jacobian[:, :count] / scale, current - predicted, rcond=1e-12)
        step = np.append(solved / scale, np.zeros(_PARAMETERS - count))
        values = values + step * min(1.0, 0.5 * values[0] / max(abs(float(step[0])), 1e-300))
    predicted, jacobian, slope = _predicted(values, voltage, current, *sums)
    residual = current - predicted
    scale = np.maximum(np.linalg.norm(jacobian[:, :count], axis=0), 1e-300)
    basis, upper = np.linalg.qr(jacobian[:, :count] / scale)
    inverse = np.linalg.pinv(upper) / scale[:, None]
    variance = float(residual @ residual) / max(len(voltage) - count, 1)
    variance += (1e-14 * float(np.abs(current).max())) ** 2
    return _Heater(values, variance * inverse @ inverse.T, slope, residual, basis)


def _predicted(
    values: Array, voltage: Array, current: Array, others_a: Array, others_w: Array
) -> tuple[Array, Array, Array]:
    """Return currents, derivatives (settings, 5) by the parameters, and the slope of current against voltage."""
    r0, beta, offset, ground, heating = values
    across = voltage - ground * (others_a + current - offset)
    own, by_law, slope = current_and_slopes(np.array([r0, beta]), across)
    warm = 1.0 - heating * others_w
    lifted = -slope * warm * (others_a + current - offset)
    jacobian = np.stack([by_law[:, 0] * warm, by_law[:, 1] * warm, np.ones_like(own), lifted, -own * others_w], axis=1)
    return own * warm + offset, jacobian, slope * warm


def _found_groups(voltage: Array, current: Array) -> Groups:
    """Join heaters whose currents fall with each other's, beyond what their own voltages and their heat explain."""
    heaters = voltage.shape[1]
    ground, variance = np.zeros((heaters, heaters)), np.full((heaters, heaters), np.inf)
    for heater in range(heaters):
        others = np.delete(np.arange(heaters), heater)
        alone = _fit_heater(voltage[:, heater], current[:, heater], None)
        lifted = -alone.slope[:, None] * current[:, others]
        free = lifted - alone.basis @ (alone.basis.T @ lifted)
        solved, *_ = np.linalg.lstsq(free, alone.residual, rcond=None)
        rest = alone.residual - free @ solved
        noise = float(rest @ rest) / max(len(voltage) - _PARAMETERS - len(others), 1)
        ground[heater, others] = solved
        variance[heater, others] = noise * np.diag(np.linalg.pinv(free.T @ free)) + 1e-24
    weight = 1.0 / variance
    both = weight + weight.T
    mean = (ground * weight + ground.T * weight.T) / np.where(both > 0.0, both, 1.0)
    joined = mean * np.sqrt(both) > FOUND_SIGMA
    return _components(joined & joined.T)


def _components(joined: NDArray[np.bool_]) -> Groups:
    group = np.full(len(joined), -1, dtype=np.intp)
    for heater in range(len(joined)):
        if group[heater] >= 0:
            continue
        group[heater] = label = group.max() + 1
        waiting = [heater]
        while waiting:
            new = np.flatnonzero(joined[waiting.pop()] & (group < 0))
            group[new] = label
            waiting += new.tolist()
    return group


def _combined(voltage: Array, current: Array, groups: Groups, leak: str) -> CommonGround:
    count = int(groups.max()) + 1
    ground, ground_sigma = np.full(count, np.nan), np.full(count, np.inf)
    heating, heating_sigma = np.full(count, np.nan), np.full(count, np.inf)
    power, scatter, free = voltage * current, 0.0, 0
    law = np.empty((voltage.shape[1], 2))
    for group in range(count):
        members = np.flatnonzero(groups == group)
        if len(members) < 2:
            law[members[0]] = _fit_heater(voltage[:, members[0]], current[:, members[0]], None).values[:2]
            continue
        fits = []
        for heater in members:
            others = members[members != heater]
            sums = current[:, others].sum(axis=1), power[:, others].sum(axis=1)
            fits.append(_fit_heater(voltage[:, heater], current[:, heater], sums))
        law[members] = [fit.values[:2] for fit in fits]
        found = np.array([fit.values[3:] for fit in fits])
        variance = np.array([np.diag(fit.covariance)[3:] for fit in fits]) + 1e-24
        (ground[group], heating[group]), sigma = _weighted(found, variance)
        ground_sigma[group], heating_sigma[group] = sigma
        scatter += float(np.sum((found[:, 0] - ground[group]) ** 2 / variance[:, 0]))
        free += len(members) - 1
    misfit = float(np.sqrt(scatter / free)) if free else 0.0
    verdict, reason = _verdict(ground, ground_sigma, misfit, leak)
    return CommonGround(
        ground, ground_sigma, groups, law[:, 0], law[:, 1], heating, heating_sigma, misfit, verdict, reason
    )


def _weighted(found: Array, variance: Array) -> tuple[Array, Array]:
    total = np.sum(1.0 / variance, axis=0)
    return np.sum(found / variance, axis=0) / total, 1.0 / np.sqrt(total)


def _verdict(ground: Array, sigma: Array, misfit: float, leak: str) -> tuple[Literal["found", "none", "poor"], str]:
    if leak:
        return "poor", leak
    if misfit > MAX_MISFIT:
        return "poor", (
            f"heaters of a group differ by {misfit:.3g} times what they are known to ({MAX_MISFIT:g} allowed): are the "
            "groups right?"
        )
    strong = np.flatnonzero(np.nan_to_num(ground) > FOUND_SIGMA * sigma)
    if strong.size:
        largest = int(strong[np.argmax(ground[strong])])
        return "found", f"{strong.size} shared returns, up to {ground[largest]:.3g} +- {sigma[largest]:.2g} ohm"
    return "none", f"no shared return exceeds {FOUND_SIGMA:g} standard deviations"


def measure_common_ground(
    bench: Bench, rng: np.random.Generator, *, settings: int | None = None, progress: Progress | None = None
) -> dict[str, Array]:
    """Read all heaters at random voltages, a third of them at zero; leaves the heaters at zero.

    Needs no light.  Voltages respect the limits of every heater and the chip's total power.

    Parameters
    ----------
    bench
        An open bench.
    rng
        Source of the voltages.
    settings
        Number of settings; None takes enough to find the groups.
    progress
        Called with (stage, done, total).

    Returns
    -------
    dict
        ``ground_voltage`` and ``ground_current`` (settings, H) in V and A, for `fit_common_ground`.

    Raises
    ------
    InstrumentError
        If a driver fails.
    """
    heaters = len(bench.layout.heaters)
    count = heaters + 2 * SPARE_SETTINGS if settings is None else settings
    nominal_ohm = bench.description.chip.nominal.resistance_ohm
    top = np.minimum(0.8 * bench.max_power, _POWER_SHARE * bench.max_total_power)
    voltage, current = np.zeros((count, heaters)), np.zeros((count, heaters))
    for setting in range(count):
        power = top * rng.uniform(size=heaters) * (rng.uniform(size=heaters) > 1.0 / 3.0)
        power *= min(1.0, _POWER_SHARE * bench.max_total_power / max(float(power.sum()), 1e-300))
        bench.set_voltages(np.minimum(np.sqrt(power * nominal_ohm), 0.9 * bench.max_voltage))
        bench.settle()
        reading = bench.read_heaters()
        voltage[setting], current[setting] = reading.voltage_v, reading.current_a
        if progress is not None:
            progress("common ground", setting + 1, count)
    bench.set_voltages(np.zeros(heaters))
    return {"ground_voltage": voltage, "ground_current": current}
