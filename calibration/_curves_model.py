"""The curve that a heater's sweep follows, and its best linear parameters for given non-linear ones."""

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
EXPECTED_SLOPE, EXPECTED_BEND, EXPECTED_HARMONIC = 0.1, 0.05, 0.01
"""Size of slope and bend at the sweep's ends, and of a second harmonic, relative to the fringe, that is usual."""
EXPECTED_CURVATURE, EXPECTED_GAIN = 0.04, 0.03
"""Usual sagitta of the phase, relative to half the sweep's, and change of the light over half a sweep."""
RELEASED = 30.0
"""By how much more a term may differ from zero once the data ask for it."""
EXPECTED_NOISE, NOISE_WEIGHT = 0.005, 2.0
"""Noise relative to the fringe that is assumed beforehand, and how many readings that assumption is worth."""
LEAST_NOISE = 5e-4
"""Readings are taken to be no better than this share of the fringe: what no converter or detector keeps."""
_SLOWEST = 0.2
_LOOSE = 1e3
_BASE_COLUMNS = 7


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
    """What the data ask for beyond a plain fringe and the usual deviations from it.

    Parameters
    ----------
    background
        Slope and bend of the readings (heat that reaches neighbours).
    curvature
        The phase is not proportional to the power.
    gain
        The light, hence every fringe, grows or falls linearly along the sweep.
    harmonic
        The fringe's second harmonic (a detector that is not linear).
    drift
        The readings drift linearly in the order of acquisition.
    second
        Another fringe with its own period.
    """

    background: bool = False
    curvature: bool = False
    gain: bool = False
    harmonic: bool = False
    drift: bool = False
    second: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the terms that are there."""
        return tuple(name for name in TERMS if getattr(self, name))

    @property
    def columns(self) -> int:
        """Number of linear parameters of a detector."""
        return _BASE_COLUMNS + self.drift + 2 * self.second

    def start(self, turns: float, curvature: float = 0.0) -> Array:
        """Return non-linear parameters: phase of half a sweep, its sagitta, gain, the second phase where there."""
        return np.array([turns, curvature, 0.0] + [0.0] * self.second)


TERMS = ("background", "curvature", "gain", "harmonic", "drift", "second")


@dataclass(frozen=True)
class Scale:
    """What usual deviations from a plain fringe are measured by.

    Parameters
    ----------
    noise
        Standard deviation of a reading.
    size
        Amplitude of the largest fringe.
    """

    noise: float
    size: float

    def linear_pulls(self, terms: Terms) -> Array:
        """Weights (L,) that hold linear parameters to their usual size."""
        background, harmonic = RELEASED**terms.background, EXPECTED_HARMONIC * RELEASED**terms.harmonic
        usual = [_LOOSE, EXPECTED_SLOPE * background, EXPECTED_BEND * background, _LOOSE, _LOOSE, harmonic, harmonic]
        usual += [_LOOSE] * (terms.columns - _BASE_COLUMNS)
        return self.noise / (self.size * np.array(usual))

    def shape_pulls(self, terms: Terms) -> tuple[float, float]:
        """Weights that hold curvature (over the phase) and gain to their usual size."""
        curvature = EXPECTED_CURVATURE * RELEASED**terms.curvature
        return self.noise / curvature, self.noise / (EXPECTED_GAIN * RELEASED**terms.gain)


def design(sweep: Sweep, terms: Terms, shape: Array) -> Array:
    """Return the columns (points, L) of the linear parameters: mean, slope, bend, fringe, harmonic, drift, second."""
    u = sweep.place
    angle = shape[0] * u + shape[1] * (u**2 - 1.0)
    swell = 1.0 + shape[2] * u
    cosine, sine = np.cos(angle), np.sin(angle)
    columns = np.empty((terms.columns, len(u)))
    columns[0], columns[1], columns[2] = 1.0, u, u**2
    columns[3], columns[4] = swell * cosine, swell * sine
    columns[5], columns[6] = cosine**2 - sine**2, 2.0 * cosine * sine
    if terms.drift:
        columns[_BASE_COLUMNS] = sweep.turn
    if terms.second:
        columns[-2], columns[-1] = np.cos(shape[-1] * u), np.sin(shape[-1] * u)
    return columns.T


def moved_design(sweep: Sweep, terms: Terms, shape: Array, columns: Array) -> Array:
    """Return the derivatives (T, points, L) of `design`'s ``columns`` by ``shape``."""
    u = sweep.place
    levers = np.stack([u, u**2 - 1.0])
    moved = np.zeros((len(shape), len(u), terms.columns))
    moved[:2, :, 3], moved[:2, :, 4] = -levers * columns[:, 4], levers * columns[:, 3]
    moved[:2, :, 5], moved[:2, :, 6] = -2.0 * levers * columns[:, 6], 2.0 * levers * columns[:, 5]
    along = u / (1.0 + shape[2] * u)
    moved[2, :, 3], moved[2, :, 4] = along * columns[:, 3], along * columns[:, 4]
    if terms.second:
        moved[-1, :, -2], moved[-1, :, -1] = -u * columns[:, -1], u * columns[:, -2]
    return moved


class Projection:
    """Best curve of fixed non-linear parameters ``shape``: least squares, deviations held to their usual size.

    Attributes
    ----------
    coefficients
        Linear parameters (L, detectors).
    residual
        Readings minus curve (points, detectors); 0 where a reading takes no part.
    basis
        Orthonormal columns (groups, points, L) of the linear parameters; one group if all detectors use the same
        points.
    misfit
        Sum of the squared residuals.
    cost
        The same, and what deviations from a plain fringe cost.
    oddity
        Sum of squares of deviations from a plain fringe over their usual sizes, at the detector with the most.
    """

    def __init__(self, sweep: Sweep, terms: Terms, shape: Array, scale: Scale) -> None:
        self.sweep, self.terms, self.shape, self.scale = sweep, terms, shape, scale
        self.design = design(sweep, terms, shape)
        points, columns, detectors = len(sweep.place), terms.columns, sweep.readings.shape[1]
        common = (sweep.used == sweep.used[:, :1]).all()
        self._weights = (sweep.used[:, :1] if common else sweep.used).T.astype(np.float64)
        held = scale.linear_pulls(terms)
        weighted = self._weights[:, :, None] * self.design
        normal = weighted.swapaxes(1, 2) @ weighted
        normal[:, range(columns), range(columns)] += held**2
        lower = np.linalg.cholesky(normal)
        self._inverse_upper = np.linalg.inv(lower).swapaxes(1, 2)
        self.basis, self._held = weighted @ self._inverse_upper, held[:, None] * self._inverse_upper
        data = np.where(sweep.used, sweep.readings, 0.0)
        data = data[None] if common else data.T[:, :, None]
        inside = self.basis.swapaxes(1, 2) @ data
        self._linear = self._inverse_upper @ inside
        self._rest = data - self.basis @ inside, -self._held @ inside
        self.coefficients = self._linear.transpose(1, 0, 2).reshape(columns, detectors)
        self.residual = self._rest[0].transpose(1, 0, 2).reshape(points, detectors)
        self.misfit = float(np.sum(self.residual**2))
        curvature, gain = scale.shape_pulls(terms)
        self._shape_rest = -np.array([curvature * shape[1] / shape[0], gain * shape[2]])
        held_squares = np.sum(self._rest[1] ** 2, axis=1).reshape(-1)
        self.cost = self.misfit + float(held_squares.sum() + np.sum(self._shape_rest**2))
        self.oddity = float(held_squares.max() + np.sum(self._shape_rest**2)) / scale.noise**2

    @cached_property
    def _turned(self) -> tuple[Array, Array]:
        """Derivatives (T, ...) of readings and of held parameters by ``shape``, linear parameters following."""
        moved = moved_design(self.sweep, self.terms, self.shape, self.design)
        turned = self._weights[:, None, :, None] * (moved[None] @ self._linear[:, None])
        inside = self.basis.swapaxes(1, 2)[:, None] @ turned
        return turned - self.basis[:, None] @ inside, -self._held[:, None] @ inside

    @cached_property
    def _by_readings(self) -> Array:
        return np.asarray(self._turned[0].swapaxes(0, 1).reshape(len(self.shape), -1))

    @cached_property
    def jacobian(self) -> Array:
        """Derivatives (T, rows) of all that enters the cost."""
        curvature, gain = self.scale.shape_pulls(self.terms)
        held = np.zeros((len(self.shape), 2))
        held[1, 0], held[2, 1] = curvature / self.shape[0], gain
        linear = self._turned[1].swapaxes(0, 1).reshape(len(self.shape), -1)
        return np.concatenate([self._by_readings, linear, held], axis=1)

    def deviation(self) -> Array:
        """Return what the cost is the squared length of, in the order of `jacobian`."""
        return np.concatenate([self._rest[0].reshape(-1), self._rest[1].reshape(-1), self._shape_rest])

    @cached_property
    def _inverse(self) -> Array:
        """Covariance (T, T) of ``shape`` for readings of unit noise."""
        scale = np.maximum(np.linalg.norm(self.jacobian, axis=1), 1e-30)
        normal = (self.jacobian / scale[:, None]) @ (self.jacobian / scale[:, None]).T
        return np.asarray(np.linalg.inv(normal + 1e-12 * np.eye(len(scale))) / np.outer(scale, scale))

    @cached_property
    def freedom(self) -> float:
        """Readings beyond what the parameters take up (held ones take up less than one each)."""
        own = float(np.sum(self.basis**2)) * self.residual.shape[1] / len(self.basis)
        shared = float(np.sum(self._inverse * (self._by_readings @ self._by_readings.T)))
        return max(float(self.sweep.used.sum()) - own - shared, 0.0)

    @cached_property
    def size(self) -> float:
        """Amplitude of the largest fringe."""
        return float(np.hypot(*self.coefficients[3:5]).max())

    @cached_property
    def noise(self) -> float:
        """Standard deviation of a reading, from the residuals and what is assumed beforehand."""
        assumed = NOISE_WEIGHT * (EXPECTED_NOISE * self.size) ** 2
        seen = np.sqrt((self.misfit + assumed) / (self.freedom + NOISE_WEIGHT))
        return float(max(seen, LEAST_NOISE * self.size, self.sweep.rounding))

    def curve(self) -> Array:
        """Return the curve (points, detectors), also where readings take no part."""
        return np.asarray(self.design @ self.coefficients)

    def shape_covariances(self) -> tuple[Array, Array]:
        """Covariances (T, T) of ``shape``: by noise, and by deviations from a plain fringe that the sweep hides.

        Where the deviations that it shows are larger than usual, the hidden ones are taken to be so too.
        """
        by_noise = self._inverse @ (self._by_readings @ self._by_readings.T) @ self._inverse * self.noise**2
        return by_noise, (self._inverse * self.noise**2 - by_noise) * max(self.oddity, 1.0)

    def linear_covariance(self, detector: int) -> tuple[Array, Array]:
        """Covariance (L, L) of a detector's linear parameters at fixed shape, and their derivative (L, T) by it."""
        one = min(detector, len(self.basis) - 1)
        inverse = self._inverse_upper[one]
        moved = moved_design(self.sweep, self.terms, self.shape, self.design) @ self.coefficients[:, detector]
        turned = self.basis[one].T @ (self._weights[one] * moved).T
        return np.asarray(inverse @ inverse.T * self.noise**2), np.asarray(-inverse @ turned)

    def stiffness(self) -> Array:
        """Inverse (T, T) of the covariance of ``shape`` for readings of unit noise."""
        return np.asarray(self.jacobian @ self.jacobian.T)

    def lever(self, detector: int) -> Array:
        """Return the change (T, points) of ``shape`` by each of a detector's readings."""
        groups = len(self.basis)
        by_one = self._turned[0][0, :, :, detector] if groups == 1 else self._turned[0][detector, :, :, 0]
        return np.asarray(self._inverse @ by_one)

    def linear_response(self, detector: int) -> Array:
        """Return the change (L, points) of a detector's linear parameters by its readings, ``shape`` unchanged."""
        one = min(detector, len(self.basis) - 1)
        return np.asarray(self._inverse_upper[one] @ self.basis[one].T)

    def leverage(self) -> Array:
        """Share (points, detectors) of each reading in its own fitted value."""
        own = np.broadcast_to(np.sum(self.basis**2, axis=2).T, self.residual.shape)
        shared = np.sum(self._by_readings * (self._inverse @ self._by_readings), axis=0)
        points, detectors = self.residual.shape
        layout = (points, detectors) if len(self.basis) == 1 else (detectors, points)
        shared = shared.reshape(layout) if len(self.basis) == 1 else shared.reshape(layout).T
        return np.asarray(np.clip(own + shared, 0.0, 1.0 - 1e-6))


def bounded(shape: Array, terms: Terms, limits: tuple[float, float]) -> Array:
    """Return non-linear parameters moved to where they may be."""
    inside = shape.copy()
    inside[0] = min(max(float(shape[0]), limits[0]), limits[1])
    most = MAX_CURVATURE * float(inside[0])
    inside[1] = min(max(float(shape[1]), -most), most)
    inside[2] = min(max(float(shape[2]), -MAX_GAIN), MAX_GAIN)
    if terms.second:
        inside[-1] = min(max(float(shape[-1]), _SLOWEST * limits[0]), limits[1])
    return inside
