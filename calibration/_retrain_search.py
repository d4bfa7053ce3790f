"""Search for a tile's settings on the twin, corrected by what the chip did last."""

from dataclasses import dataclass

import numpy as np

from calibration._retrain_linear import TwinProducts
from calibration._retrain_steps import LinearModel
from calibration._retrain_task import CellTask, HeaterDac
from calibration._session import Array
from optinc_hw.photonics.program import ProgrammedMatrix, trained_heaters

_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 0.1, 1e-4, 10.0
_EASED, _HARDENED = 0.1, 10.0
_ROUNDING_DAMPINGS = (1e-4, 1e-3, 1e-2, 0.1)
_WORTHWHILE = 0.01
"""Relative gain below which a step does not count."""
_ATTEMPTS, _KICK_RAD = 8, 0.1
"""Starts of the search, and rms in rad by which phases are moved away for all but the first."""
_DOUBT_PER_RAD = 0.15
"""Rms error of predicted products per rad (rms) by which phases were moved from a setting that was measured."""


@dataclass(frozen=True)
class _Point:
    """Settings (H,), products (batch, r) that they give, and their cost."""

    settings: Array
    products: Array
    cost: float


class TwinSearch:
    """Settings of one tile that a twin recommends.

    Parameters
    ----------
    programmed
        The tile, with the twin as its parameters.
    task
        What is wanted.
    dac
        Steps of the heaters.
    rng
        Source of the starts.
    """

    def __init__(self, programmed: ProgrammedMatrix, task: CellTask, dac: HeaterDac, rng: np.random.Generator) -> None:
        self._programmed, self._task, self._dac, self._rng = programmed, task, dac, rng
        self._free = trained_heaters(programmed.parameters)
        self._twin = TwinProducts(programmed.parameters, programmed.reference * programmed.row_scale)
        self._largest = dac.largest(programmed.max_power_w)
        self._generator_w = programmed.drive(task.amplitudes)[:, : 2 * programmed.parameters.layout.modulators]
        self._surprise = np.zeros((len(task.amplitudes), len(task.matrix)))

    def best(self, settings: Array, power_w: Array, measured: Array, enough: float) -> Array:
        """Return settings (H,) that should be better than those with which products (batch, r) were measured.

        Parameters
        ----------
        settings
            Present settings (H,).
        power_w
            Powers (batch, H) in W of all heaters then; the generator may have been driven by another twin.
        measured
            What the chip gave; the twin's predictions are corrected by what it misses there.
        enough
            Rms of the weighted errors at which to stop.
        """
        self._surprise = measured - self._products(power_w)
        best = self._point(settings)
        for attempt in range(_ATTEMPTS):
            tried = self._descend(self._point(self._start(settings, attempt)))
            if self._dac.whole:
                tried = self._rounded(tried)
            best = min(best, tried, key=lambda point: self._doubted(point, settings))
            if self._doubted(best, settings) <= enough**2:
                break
        return best.settings

    def _doubted(self, point: _Point, settings: Array) -> float:
        """Cost that is to be feared: a twin knows best what is near to what was measured."""
        moved = (point.settings - settings)[self._free] * self._radians(settings)
        doubt = _DOUBT_PER_RAD**2 * float(np.mean(moved**2))
        return point.cost + doubt * float(np.mean(self._task.weights**2))

    def _start(self, settings: Array, attempt: int) -> Array:
        if attempt == 0:
            return settings
        moved, radians = settings.copy(), self._radians(settings)
        kicks = _KICK_RAD * self._rng.standard_normal(len(self._free))
        moved[self._free] += np.divide(kicks, radians, out=np.zeros(len(kicks)), where=radians > 1e-6)
        return np.clip(moved, 0.0, self._largest)

    def _descend(self, point: _Point) -> _Point:
        """Damped Gauss-Newton steps, as if settings were continuous."""
        damping, model = _FIRST_DAMPING, self._model(point)
        while damping <= _MOST_DAMPING:
            tried = self._point(self._moved(point, model, damping, whole=False))
            if tried.cost < (1.0 - _WORTHWHILE) * point.cost:
                point, damping = tried, max(damping * _EASED, _LEAST_DAMPING)
                model = self._model(point)
            else:
                damping *= _HARDENED
        return point

    def _rounded(self, point: _Point) -> _Point:
        """Whole settings nearby that cost least; once more from there."""
        best = None
        for _ in range(2):
            model = self._model(point)
            found = [self._point(self._moved(point, model, damping, whole=True)) for damping in _ROUNDING_DAMPINGS]
            point = min(found, key=lambda one: one.cost)
            best = point if best is None or point.cost < best.cost else best
        assert best is not None
        return best

    def _model(self, point: _Point) -> LinearModel:
        """Errors at a point, and how the trained heaters change them."""
        twin, dac, power = self._programmed.parameters, self._dac, self._power(point.settings)
        by_phase = self._twin.by_phase(power)
        free, slope_w = self._free, dac.slope(point.settings)
        slopes = self._task.without_lines(by_phase @ (twin.crosstalk[:, free] * (twin.efficiency * slope_w)[free]))
        error, root = self._task.error(point.products), np.sqrt(point.products.size)
        return LinearModel(
            error.ravel() / root, slopes.reshape(-1, len(free)) / root, self._radians(point.settings),
            point.settings[free], self._largest[free],
        )  # fmt: skip

    def _moved(self, point: _Point, model: LinearModel, damping: float, *, whole: bool) -> Array:
        """Return settings (H,) after one step."""
        moved = point.settings.copy()
        moved[self._free] = model.solve(damping, whole=whole)
        return moved

    def _point(self, settings: Array) -> _Point:
        products = self._products(self._power(settings)) + self._surprise
        return _Point(settings, products, self._task.cost(products))

    def _products(self, power_w: Array) -> Array:
        return self._twin.values(power_w) - self._programmed.leak

    def _power(self, settings: Array) -> Array:
        """Powers (batch, H) in W of all heaters, the generator's as for the matrix that is being improved."""
        power = np.tile(self._dac.power(settings), (len(self._generator_w), 1))
        power[:, : self._generator_w.shape[1]] = self._generator_w
        return power

    def _radians(self, settings: Array) -> Array:
        """Phase in rad that one step of each trained heater (F,) gives."""
        return (self._programmed.parameters.efficiency * self._dac.slope(settings))[self._free]
