"""Resistance law of a single heater: currents and voltages in, law with a verdict out."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtrc, stdtrit

from calibration._arrays import floats
from optinc_hw.errors import CalibrationError

MIN_POWER_SPAN = 0.1
"""Smallest span of the powers of a resistance fit, relative to the largest."""
MAX_RESIDUAL = 0.02
"""Largest accepted residual, relative to the resistance at zero power."""
MAX_GROWTH = 2.0
"""Largest accepted factor by which the resistance changes over the sweep."""
MAX_RELATIVE_SIGMA = 0.05
"""Largest accepted standard deviation of the resistance, relative to it."""
MIN_POINTS_OFFSET, MIN_VOLTAGE_RATIO = 5, 1.5
"""Without a reading at 0 V, the offset of the current is fitted from so many voltages, which differ by this factor."""
OUTLIER_CHANCE = 1e-3
"""A reading is left out if noise alone would throw one of them so far less often than this (Student's t)."""
FLOW_CHANCE = 1e-4
"""Currents count as flowing through a heater if noise alone would follow the voltages so well less often than this."""
OUTLIER_SHARE = 7
"""Not more than one reading in so many is left out as an outlier."""

BEND_CHANCE = 1e-3
"""Resistances count as not growing in proportion to the power if noise alone bends them so less often than this."""
LIMIT_AGREES, LIMIT_MOVES = 0.005, 0.02
"""Readings at the end of a sweep stand at a limit of the source if currents (or voltages) agree to the first share
while voltages (or currents) move by the second."""

Array = NDArray[np.float64]
_STEPS = 30
_FEWEST, _LEAST_NOISE = 3, 1e-9
_NORMAL_95 = 1.96


@dataclass(frozen=True)
class ResistanceFit:
    """Resistance law ``R(P) = R0 (1 + beta P)`` of one heater.

    Parameters
    ----------
    resistance_ohm, beta_per_w
        R0 in ohm and beta in 1/W (NaN where the readings are no heater's).
    covariance
        Covariance (2, 2) of (R0, beta), likewise.
    residual_ohm
        Rms deviation of the measured resistances in ohm.
    good
        Whether the law holds: the currents follow the voltages (`FLOW_CHANCE`), R0 is positive and known to
        `MAX_RELATIVE_SIGMA` (times Student's factor for the degrees of freedom), residual at most `MAX_RESIDUAL` of R0,
        resistance within a factor of `MAX_GROWTH` over the sweep and within the range asked for.
    reason
        Why not, or an empty string.
    offset_a, offset_sigma_a
        Offset of the current readings and its standard deviation in A; 0 and NaN if the readings do not tell.
    outliers
        Number of readings left out because they lie too far from the law.
    limited
        Number of readings left out because the source stood at its current or voltage limit.
    """

    resistance_ohm: float
    beta_per_w: float
    covariance: Array
    residual_ohm: float
    good: bool
    reason: str
    offset_a: float = 0.0
    offset_sigma_a: float = float("nan")
    outliers: int = 0
    limited: int = 0


def fit_resistance(
    current_a: ArrayLike, voltage_v: ArrayLike, *, expected_ohm: tuple[float, float] | None = None
) -> ResistanceFit:
    """Fit the resistance law of a heater to measured currents and voltages.

    The currents' read-back may have an offset: it is fitted where a reading at 0 V, or enough different voltages,
    determine it.  Readings at the end of the sweep where the source stood at its limit are left out, and so are single
    outliers.  Where the resistance does not grow in proportion to the power (`BEND_CHANCE`), the covariance holds what
    that may have done to R0 and beta.

    Parameters
    ----------
    current_a, voltage_v
        Readings (points,) in A and V; at least three above zero, at different powers.
    expected_ohm
        Smallest and largest resistance in ohm that this heater can have, 0 <= smallest < largest, the largest may be
        infinite; None accepts any. Below it a heater is shorted, above it open.

    Returns
    -------
    ResistanceFit
        Least squares of the current (readings of the current limit it), with a verdict.

    Raises
    ------
    CalibrationError
        If shapes differ, values are no finite numbers, fewer than three points at different powers carry current, or
        the expected resistances are no range.
    """
    current, voltage = _checked(current_a, voltage_v)
    expected = None if expected_ohm is None else _checked_range(expected_ohm)
    free = ~_at_limit(current, voltage)
    current, voltage = current[free], voltage[free]
    kept = np.ones(len(current), dtype=bool)
    with_offset = _tells_offset(voltage)
    law = _least_squares(current, voltage, with_offset)
    for _ in range(len(current) // OUTLIER_SHARE):
        worst = _outlier(law, current, voltage, kept)
        if worst < 0:
            break
        kept[worst] = False
        law = _least_squares(current[kept], voltage[kept], with_offset)
    fit = _judge(law, current[kept], voltage[kept], expected)
    return replace(fit, outliers=int((~kept).sum()), limited=int((~free).sum()))


@dataclass(frozen=True)
class _Law:
    """Parameters R0, beta and offset, and their covariance for residuals of unit variance; offset fixed if absent."""

    values: Array
    unit_covariance: Array
    rms_a: float
    freedom: int

    @property
    def has_offset(self) -> bool:
        return len(self.unit_covariance) == 3


def _checked(current_a: ArrayLike, voltage_v: ArrayLike) -> tuple[Array, Array]:
    current, voltage = floats("current_a", current_a), floats("voltage_v", voltage_v)
    if current.shape != voltage.shape or current.ndim != 1:
        raise CalibrationError(
            f"current and voltage must be vectors of one length, got {current.shape} and {voltage.shape}"
        )
    if not (np.isfinite(current).all() and np.isfinite(voltage).all()):
        raise CalibrationError(
            "current or voltage holds NaN or Inf, or is masked; leave invalid readings out of the fit"
        )
    carrying = (current > 0.0) & (voltage > 0.0)
    if carrying.sum() < 3:
        raise CalibrationError(
            f"only {int(carrying.sum())} of {current.size} points carry current; three are needed (is the heater open?)"
        )
    power = voltage[carrying] * current[carrying]
    if np.ptp(power) < MIN_POWER_SPAN * power.max():
        raise CalibrationError(
            f"all points are at {power.max():.3g} W within {MIN_POWER_SPAN:.0%}; a growing resistance shows only over "
            "different powers"
        )
    used = carrying | (voltage == 0.0)
    return current[used], voltage[used]


def _checked_range(expected_ohm: tuple[float, float]) -> tuple[float, float]:
    ends = floats("expected_ohm", expected_ohm)
    if ends.shape != (2,):
        raise CalibrationError(f"expected_ohm must be the smallest and the largest resistance, got shape {ends.shape}")
    low, high = (float(end) for end in ends)
    if not 0.0 <= low < high or low == np.inf:
        raise CalibrationError(
            f"expected_ohm from {low!r} to {high!r} ohm is no range; give 0 <= smallest < largest, or None for any"
        )
    return low, high


def _at_limit(current: Array, voltage: Array) -> NDArray[np.bool_]:
    """Tell which readings stand at the source's limit; none if fewer than three others are left."""
    limited = np.zeros(len(current), dtype=bool)
    for standing, moving in ((current, voltage), (voltage, current)):
        end = standing >= (1.0 - LIMIT_AGREES) * standing.max()
        if end.sum() > 1 and moving[end].max() > (1.0 + LIMIT_MOVES) * moving[end].min():
            limited |= end
    left = ~limited & (voltage > 0.0)
    return limited if len(np.unique(voltage[left])) >= _FEWEST else np.zeros_like(limited)


def _tells_offset(voltage: Array) -> bool:
    levels = np.unique(voltage[voltage > 0.0])
    if (voltage == 0.0).any():
        return True
    return len(levels) >= MIN_POINTS_OFFSET and bool(levels[-1] >= MIN_VOLTAGE_RATIO * levels[0])


def current_and_slopes(law: Array, voltage: Array) -> tuple[Array, Array, Array]:
    """Return currents of a law (R0, beta), their derivatives (points, 2) by it, and those by the voltage."""
    r0, beta = law
    root = np.sqrt(np.maximum(1.0 + 4.0 * beta * voltage**2 / r0, 1e-6))
    current = 2.0 * voltage / (r0 * (1.0 + root))
    # From I R0 (1 + beta V I) = V.
    stiffness = r0 * (1.0 + 2.0 * beta * voltage * current)
    stiffness = np.where(np.abs(stiffness) > 1e-9 * r0, stiffness, 1e-9 * r0)
    by_r0 = -current * (1.0 + beta * voltage * current) / stiffness
    by_beta = -r0 * voltage * current**2 / stiffness
    return current, np.stack([by_r0, by_beta], axis=1), (1.0 - r0 * beta * current**2) / stiffness


def _model(values: Array, voltage: Array) -> tuple[Array, Array]:
    """Return currents, and their derivatives (points, 3) by R0, beta and offset."""
    current, by_law, _ = current_and_slopes(values[:2], voltage)
    return current + values[2], np.column_stack([by_law, np.ones_like(voltage)])


def _least_squares(current: Array, voltage: Array, with_offset: bool) -> _Law:
    """Gauss-Newton from the straight line of resistance against power."""
    carrying = voltage > 0.0
    ratio, power = voltage[carrying] / current[carrying], voltage[carrying] * current[carrying]
    lines = np.stack([np.ones_like(power), power], axis=1) * current[carrying, None]
    (r0, growth), *_ = np.linalg.lstsq(lines, ratio * current[carrying], rcond=None)
    count = 3 if with_offset else 2
    freedom = len(current) - count
    if r0 <= 0.0:
        return _Law(np.array([r0, np.nan, 0.0]), np.full((count, count), np.inf), float(current.std()), freedom)
    values = np.array([r0, growth / r0, 0.0])
    predicted, jacobian = _model(values, voltage)
    cost = float(np.sum((current - predicted) ** 2))
    for _ in range(_STEPS):
        scale = np.linalg.norm(jacobian[:, :count], axis=0)
        step, *_ = np.linalg.lstsq(jacobian[:, :count] / scale, current - predicted, rcond=None)
        step = np.append(step / scale, np.zeros(3 - count))
        step *= min(1.0, 0.5 * values[0] / max(abs(step[0]), 1e-300))
        tried, tried_jacobian = _model(values + step, voltage)
        tried_cost = float(np.sum((current - tried) ** 2))
        if not tried_cost < cost:
            break
        values, predicted, jacobian, cost = values + step, tried, tried_jacobian, tried_cost
    scale = np.linalg.norm(jacobian[:, :count], axis=0)
    normal = (jacobian[:, :count] / scale).T @ (jacobian[:, :count] / scale)
    covariance = np.linalg.pinv(normal, hermitian=True) / np.outer(scale, scale)
    return _Law(values, covariance, float(np.sqrt(cost / max(freedom, 1))), freedom)


def _outlier(law: _Law, current: Array, voltage: Array, kept: NDArray[np.bool_]) -> int:
    """Return the reading that lies too far from the law of the others, or -1."""
    if law.freedom < 3 or not law.rms_a > 0.0 or not np.isfinite(law.unit_covariance).all():
        return -1
    predicted, jacobian = _model(law.values, voltage)
    jacobian = jacobian[:, : len(law.unit_covariance)]
    leverage = np.clip(np.einsum("pi,ij,pj->p", jacobian, law.unit_covariance, jacobian), 0.0, 1.0 - 1e-9)
    inner = np.where(kept, (current - predicted) / (law.rms_a * np.sqrt(1.0 - leverage)), 0.0)
    inner_squared = np.minimum(inner**2, law.freedom - 1e-9)
    deleted = np.abs(inner) * np.sqrt((law.freedom - 1.0) / (law.freedom - inner_squared))
    worst = int(np.argmax(deleted))
    limit = -float(stdtrit(law.freedom - 1, OUTLIER_CHANCE / (2.0 * kept.sum())))
    return worst if deleted[worst] > limit and np.abs(current[worst] - predicted[worst]) > 1e-9 * current.max() else -1


def _bend(law: _Law, current: Array, voltage: Array) -> Array:
    """Return by how much a resistance that also grows with the square of the power changes R0 and beta; else 0."""
    freedom = law.freedom - 1
    if freedom < 1 or not law.values[0] > 0.0:
        return np.zeros(2)
    power = voltage * current
    columns = np.stack([current, current * power, np.ones_like(current), current * power**2], axis=1)
    columns = columns if law.has_offset else columns[:, [0, 1, 3]]
    scale = np.linalg.norm(columns, axis=0)
    weight = voltage.max() / law.values[0]  # voltages to currents, and to about 1
    straight, *_ = np.linalg.lstsq((columns / scale)[:, :-1], voltage, rcond=None)
    bent, *_ = np.linalg.lstsq(columns / scale, voltage, rcond=None)
    costs = [
        float(np.sum(((columns / scale)[:, : len(fit)] @ fit - voltage) ** 2)) / (weight * law.values[0]) ** 2
        for fit in (straight, bent)
    ]
    noise = max(costs[1] / freedom, _LEAST_NOISE**2)
    if float(fdtrc(1, freedom, max(costs[0] - costs[1], 0.0) / noise)) > BEND_CHANCE:
        return np.zeros(2)
    laws = [fit[:2] / scale[:2] for fit in (straight, bent)]
    return np.asarray([laws[1][0] - laws[0][0], laws[1][1] / laws[1][0] - laws[0][1] / laws[0][0]])


def _judge(law: _Law, current: Array, voltage: Array, expected_ohm: tuple[float, float] | None) -> ResistanceFit:
    r0, beta, offset = (float(value) for value in law.values)
    carrying = (voltage > 0.0) & (current - offset > 0.0)
    true_current = current[carrying] - offset
    power, measured = voltage[carrying] * true_current, voltage[carrying] / true_current
    top = r0 * (1.0 + beta * float(power.max(initial=0.0)))
    residual = measured - r0 * (1.0 + beta * power)
    rms = float(np.sqrt(np.mean(residual**2))) if power.size else float("nan")
    known_at_all = np.isfinite(law.unit_covariance)
    covariance = np.where(known_at_all, np.where(known_at_all, law.unit_covariance, 0.0) * law.rms_a**2, np.inf)
    bend = _bend(law, current, voltage)
    covariance[:2, :2] += np.outer(bend, bend)
    sigma = float(np.sqrt(covariance[0, 0]))
    offset_sigma = float(np.sqrt(covariance[2, 2])) if law.has_offset else float("nan")
    known = sigma * _student_factor(law.freedom) < MAX_RELATIVE_SIGMA * r0 and _flows(law, current)
    if not (r0 > 0.0 and r0 / MAX_GROWTH < top < r0 * MAX_GROWTH and known):
        reason = (
            f"the resistance goes from {r0:.3g} to {top:.3g} ohm over the sweep and is known to {sigma:.2g} ohm: "
            + ("it does not grow in proportion to the power" if bend.any() else "the heater is open or damaged")
        )
        nowhere = np.full((2, 2), np.nan)
        return ResistanceFit(r0, float("nan"), nowhere, rms, False, reason, offset, offset_sigma)
    reason = _complaint(r0, rms, expected_ohm)
    return ResistanceFit(r0, beta, covariance[:2, :2], rms, not reason, reason, offset, offset_sigma)


def _student_factor(freedom: int) -> float:
    """Return by how much wider than normal the 95 % interval is with few degrees of freedom."""
    return float(stdtrit(freedom, 0.975)) / _NORMAL_95 if freedom > 0 else 1.0


def _flows(law: _Law, current: Array) -> bool:
    """Tell whether the currents follow the voltages, or are an offset with noise (F test)."""
    if law.freedom < 1:
        return True
    explained = float(np.sum((current - current.mean()) ** 2)) - law.freedom * law.rms_a**2
    noise = max(law.rms_a**2, (1e-15 * float(np.abs(current).max())) ** 2)
    return float(fdtrc(1, law.freedom, max(explained, 0.0) / noise)) < FLOW_CHANCE


def _complaint(r0: float, rms: float, expected_ohm: tuple[float, float] | None) -> str:
    if rms > MAX_RESIDUAL * r0:
        return f"residual {rms:.3g} ohm exceeds {100.0 * MAX_RESIDUAL:g} % of {r0:.4g} ohm"
    if expected_ohm is not None and r0 < expected_ohm[0]:
        return (
            f"{r0:.3g} ohm is less than the {expected_ohm[0]:.3g} ohm that the heater can have: "
            "it is shorted, or another one"
        )
    if expected_ohm is not None and r0 > expected_ohm[1]:
        return (
            f"{r0:.3g} ohm is more than the {expected_ohm[1]:.3g} ohm that the heater can have: "
            "it is open or damaged, or another one"
        )
    return ""
