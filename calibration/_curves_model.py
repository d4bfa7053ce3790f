"""The curve that a heater's sweep follows, and its least-squares fit by variable projection."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

MAX_CURVATURE = 0.2
"""Largest bend of the phase against the power: its sagitta over half the phase that the sweep turns."""
MAX_GAIN = 0.9
"""Largest change of the light over half a sweep, relative to its middle."""
_SLOWEST = 0.2
_BASE_COLUMNS = 5
_STEPS = 40
_SMALL_STEP, _SMALL_GAIN, _TINY = 1e-9, 1e-6, 1e-30
_ROUNDING = 1e-14
"""Readings are taken to be no better than this share of the largest one."""
_CHUNK = 500_000


@dataclass(frozen=True, eq=False)
class Sweep:
    """One heater's sweep in natural units.

    Parameters
    ----------
    place
        Powers (points,), scaled so that the sweep runs from -1 to 1.
    readings
        Readings (points, detectors), shifted and scaled to about 1; 0 where invalid.
    used
        Which readings take part (points, detectors).
    turn
        Place (points,) of each point in the order of acquisition, from -1 to 1.
    rounding
        Rounding error of the readings.
    """

    place: Array
    readings: Array
    used: Mask
    turn: Array
    rounding: float

    def without(self, dropped: Mask) -> "Sweep":
        """Return the sweep without some readings."""
        return replace(self, used=self.used & ~dropped)

    def with_columns(self, columns: NDArray[np.intp]) -> "Sweep":
        """Return the sweep of some detectors."""
        return replace(self, readings=self.readings[:, columns], used=self.used[:, columns])


@dataclass(frozen=True)
class Terms:
    """What a curve has beyond mean, slope, bend and one fringe.

    Parameters
    ----------
    gain
        The light, hence every fringe, grows or falls linearly along the sweep.
    harmonic
        The fringe's second harmonic (a detector that is not linear).
    drift
        The readings drift linearly in the order of acquisition.
    second
        Another fringe with its own period.
    """

    gain: bool = False
    harmonic: bool = False
    drift: bool = False
    second: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the terms that are there."""
        return tuple(name for name in ("gain", "harmonic", "drift", "second") if getattr(self, name))

    @property
    def columns(self) -> int:
        """Number of linear parameters of a detector."""
        return _BASE_COLUMNS + 2 * self.harmonic + self.drift + 2 * self.second

    def start(self, turns: float, curvature: float = 0.0, second: float = 0.0) -> Array:
        """Return non-linear parameters: phase of half a sweep, its sagitta, gain and second phase where there."""
        return np.array([turns, curvature] + [0.0] * self.gain + [second] * self.second)


def design(sweep: Sweep, terms: Terms, shape: Array) -> Array:
    """Return the columns (points, L) of the linear parameters: mean, slope, bend, fringe, and those of the terms."""
    u = sweep.place
    angle = shape[0] * u + shape[1] * (u**2 - 1.0)
    swell = 1.0 + shape[2] * u if terms.gain else 1.0
    columns = np.empty((terms.columns, len(u)))
    columns[0], columns[1], columns[2] = 1.0, u, u**2
    columns[3], columns[4] = swell * np.cos(angle), swell * np.sin(angle)
    row = _BASE_COLUMNS
    if terms.harmonic:
        columns[row], columns[row + 1] = np.cos(2.0 * angle), np.sin(2.0 * angle)
        row += 2
    if terms.drift:
        columns[row] = sweep.turn
        row += 1
    if terms.second:
        columns[row], columns[row + 1] = np.cos(shape[-1] * u), np.sin(shape[-1] * u)
    return columns.T


def moved_design(sweep: Sweep, terms: Terms, shape: Array, columns: Array) -> Array:
    """Return the derivatives (T, points, L) of `design`'s ``columns`` by ``shape``."""
    u = sweep.place
    levers = np.stack([u, u**2 - 1.0])
    moved = np.zeros((len(shape), len(u), terms.columns))
    moved[:2, :, 3], moved[:2, :, 4] = -levers * columns[:, 4], levers * columns[:, 3]
    if terms.gain:
        swell = 1.0 + shape[2] * u
        moved[2, :, 3], moved[2, :, 4] = u * columns[:, 3] / swell, u * columns[:, 4] / swell
    if terms.harmonic:
        one, other = _BASE_COLUMNS, _BASE_COLUMNS + 1
        moved[:2, :, one], moved[:2, :, other] = -2.0 * levers * columns[:, other], 2.0 * levers * columns[:, one]
    if terms.second:
        moved[-1, :, -2], moved[-1, :, -1] = -u * columns[:, -1], u * columns[:, -2]
    return moved


class Projection:
    """Least-squares curve of fixed non-linear parameters ``shape``.

    Attributes
    ----------
    coefficients
        Linear parameters (L, detectors).
    residual
        Readings minus curve (points, detectors); 0 where a reading takes no part.
    cost
        Sum of the squared residuals.
    """

    def __init__(self, sweep: Sweep, terms: Terms, shape: Array) -> None:
        self.sweep, self.terms, self.shape = sweep, terms, shape
        self.design = design(sweep, terms, shape)
        if (sweep.used == sweep.used[:, :1]).all():
            weights = sweep.used[None, :, 0].astype(np.float64)
        else:
            weights = sweep.used.T.astype(np.float64)
        self.basis, self._upper = np.linalg.qr(weights[:, :, None] * self.design)
        data = np.where(sweep.used, sweep.readings, 0.0).T[..., None]
        inside = self.basis.swapaxes(1, 2) @ data
        self.coefficients = _back_substituted(self._upper, inside)[..., 0].T
        self.residual = (data - self.basis @ inside)[..., 0].T
        self.cost = float(np.sum(self.residual**2))

    @cached_property
    def _moved(self) -> Array:
        return moved_design(self.sweep, self.terms, self.shape, self.design)

    @property
    def freedom(self) -> int:
        """Readings beyond parameters."""
        used = self.sweep.used.sum(axis=0)
        return int(np.maximum(used - self.terms.columns, 0).sum()) - len(self.shape)

    @property
    def rms(self) -> float:
        """Residual rms per degree of freedom, at least the rounding of the readings."""
        return float(np.hypot(np.sqrt(self.cost / max(self.freedom, 1)), self.sweep.rounding))

    def curve(self) -> Array:
        """Return the curve (points, detectors), also where readings take no part."""
        return np.asarray(self.design @ self.coefficients)

    def jacobian(self) -> Array:
        """Differentiate the curve by ``shape``, linear parameters following: (points, detectors, T)."""
        turned = np.where(self.sweep.used, self._moved @ self.coefficients, 0.0).transpose(2, 1, 0)
        return np.asarray((turned - self.basis @ (self.basis.swapaxes(1, 2) @ turned)).transpose(1, 0, 2))

    def shape_covariance(self) -> Array:
        """Covariance (T, T) of ``shape`` for residuals of unit variance; infinite where undetermined."""
        jacobian = self.jacobian().reshape(-1, len(self.shape))
        scale = np.linalg.norm(jacobian, axis=0)
        if not (scale > 0.0).all():
            return np.full((len(scale),) * 2, np.inf)
        normal = (jacobian / scale).T @ (jacobian / scale)
        if np.linalg.cond(normal) > 1e13:
            return np.full((len(scale),) * 2, np.inf)
        return np.asarray(np.linalg.inv(normal) / np.outer(scale, scale))

    def linear_covariance(self, detector: int) -> tuple[Array, Array]:
        """Covariance (L, L) of a detector's linear parameters at fixed shape, and their derivative (L, T) by it."""
        one = min(detector, len(self._upper) - 1)
        inverse = np.linalg.pinv(self._upper[one])
        turned = np.where(self.sweep.used[:, detector], self._moved @ self.coefficients[:, detector], 0.0).T
        return np.asarray(inverse @ inverse.T), np.asarray(-inverse @ (self.basis[one].T @ turned))

    def unseen_shift(self, share: float, sigmas: float) -> float:
        """Return how far the fringe's phase would move by its second harmonic, as far as the sweep does not show it.

        The harmonic is taken in each detector with the worst phase, with ``share`` of the fringe, or less if that
        would stand out of the residuals by ``sigmas`` standard deviations.
        """
        angle = self.shape[0] * self.sweep.place + self.shape[1] * (self.sweep.place**2 - 1.0)
        used = self.sweep.used.astype(np.float64)[..., None]
        harmonic = used * np.stack([np.cos(2.0 * angle), np.sin(2.0 * angle)], axis=1)[:, None]
        harmonic = harmonic.transpose(1, 0, 2)
        free = harmonic - self.basis @ (self.basis.swapaxes(1, 2) @ harmonic)
        pull = (self.shape_covariance() @ self.jacobian().transpose(1, 2, 0) @ free)[:, 0]
        seen = np.linalg.norm(free, axis=1).min(axis=1)
        sizes = share * np.hypot(*self.coefficients[3:5])
        sizes = np.minimum(sizes, sigmas * self.rms / np.maximum(seen, _TINY))
        return float(np.linalg.norm(np.linalg.norm(pull, axis=1) * sizes))

    def leverage(self) -> Array:
        """Share (points, detectors) of each reading in its own fitted value."""
        own = np.broadcast_to(np.sum(self.basis**2, axis=2).T, self.residual.shape).copy()
        jacobian = self.jacobian()
        covariance = self.shape_covariance()
        if np.isfinite(covariance).all():
            own += np.einsum("pdt,tu,pdu->pd", jacobian, covariance, jacobian)
        return np.asarray(np.clip(own, 0.0, 1.0 - 1e-6))


def _back_substituted(upper: Array, right: Array) -> Array:
    """Solve triangular systems; where a column is missing (nothing is used) its parameters are 0."""
    diagonal = np.abs(np.diagonal(upper, axis1=1, axis2=2))
    if (diagonal > 1e-12 * diagonal.max(axis=1, keepdims=True, initial=0.0)).all() and (diagonal > 0.0).all():
        return np.asarray(np.linalg.solve(upper, right))
    return np.asarray(np.linalg.pinv(upper) @ right)


def fit_shape(sweep: Sweep, terms: Terms, start: Array, limits: tuple[float, float], steps: int = _STEPS) -> Projection:
    """Move the non-linear parameters to the least squares (Levenberg-Marquardt), with the phases within ``limits``."""
    best = Projection(sweep, terms, _bounded(start, terms, limits))
    exact = float(sweep.used.sum()) * sweep.rounding**2
    damping, settled = 1e-4, 0
    for _ in range(steps):
        jacobian = best.jacobian().reshape(-1, len(start))
        scale = np.maximum(np.linalg.norm(jacobian, axis=0), _TINY)
        jacobian = jacobian / scale
        normal, slope = jacobian.T @ jacobian, jacobian.T @ best.residual.reshape(-1)
        while True:
            step = np.linalg.solve(normal + damping * np.eye(len(start)), slope) / scale
            tried = Projection(sweep, terms, _bounded(best.shape + step, terms, limits))
            move = float(np.abs(tried.shape - best.shape).max()) / max(1.0, abs(best.shape[0]))
            if tried.cost <= best.cost or move < _SMALL_STEP:
                break
            damping = max(8.0 * damping, 1e-3)
        gain = best.cost - tried.cost
        if gain >= 0.0:
            best, damping = tried, damping * 0.1
        settled = settled + 1 if gain < _SMALL_GAIN * best.cost or move < _SMALL_STEP else 0
        if settled == 2 or move < _SMALL_STEP or best.cost <= exact:
            break
    return best


def _bounded(shape: Array, terms: Terms, limits: tuple[float, float]) -> Array:
    bounded = shape.copy()
    bounded[0] = min(max(float(shape[0]), limits[0]), limits[1])
    most = MAX_CURVATURE * float(bounded[0])
    bounded[1] = min(max(float(shape[1]), -most), most)
    if terms.gain:
        bounded[2] = min(max(float(shape[2]), -MAX_GAIN), MAX_GAIN)
    if terms.second:
        bounded[-1] = min(max(float(shape[-1]), _SLOWEST * limits[0]), limits[1])
    return bounded


def grid_costs(sweep: Sweep, turns: Array, bend: float, parabola: bool = True) -> Array:
    """Costs of fringes of each half-sweep phase ``turns``, whose phase bends by ``bend`` of it.

    ``parabola`` False leaves slope and bend of the readings out, for sweeps too short to tell them from the fringe.
    """
    u = sweep.place
    base = np.stack([np.ones_like(u), u, u**2] if parabola else [np.ones_like(u)], axis=1)
    common = bool((sweep.used == sweep.used[:, :1]).all())
    weights = (sweep.used[:, :1] if common else sweep.used).T.astype(np.float64)[:, None, :, None]
    data = np.where(sweep.used, sweep.readings, 0.0)
    total = float(np.sum(data**2))
    costs = []
    size = len(turns) * len(u) * 5 * len(weights)
    for some in np.array_split(turns, 1 + size // _CHUNK):
        angle = some[:, None] * (u + bend * (u**2 - 1.0))
        constant = np.broadcast_to(base, (len(some), *base.shape))
        columns = np.concatenate([constant, np.stack([np.cos(angle), np.sin(angle)], axis=2)], axis=2)
        basis = np.linalg.qr(weights * columns)[0]
        inside = basis[0].swapaxes(1, 2) @ data if common else basis.swapaxes(2, 3) @ data.T[:, None, :, None]
        costs.append(total - np.sum(inside**2, axis=(1, 2) if common else (0, 2, 3)))
    return np.asarray(np.maximum(np.concatenate(costs), 0.0))


def second_costs(best: Projection, turns: Array) -> Array:
    """Costs of the curve ``best`` with a second fringe of each half-sweep phase, its own shape unchanged."""
    angle = turns[:, None] * best.sweep.place
    other = np.stack([np.cos(angle), np.sin(angle)], axis=2)
    costs = np.full(len(turns), best.cost)
    for row, basis in enumerate(best.basis):
        columns = best.residual if len(best.basis) == 1 else best.residual[:, [row]]
        weights = best.sweep.used[:, row].astype(np.float64)[None, :, None]
        weighted = weights * other
        free = np.linalg.qr(weighted - basis @ (basis.T @ weighted))[0]
        costs -= np.sum((free.swapaxes(1, 2) @ columns) ** 2, axis=(1, 2))
    return costs


def local_minima(costs: Array) -> NDArray[np.intp]:
    """Places of local minima, the lowest first; the ends count."""
    padded = np.concatenate([[np.inf], costs, [np.inf]])
    found = np.flatnonzero((costs <= padded[:-2]) & (costs <= padded[2:]))
    return np.asarray(found[np.argsort(costs[found], kind="stable")])
