"""Retraining of one tile: products are measured on the chip, better settings come from a twin that learns from them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from calibration._retrain_search import TwinSearch
from calibration._retrain_task import CellTask, HeaterDac
from calibration._retrain_twin import LearningTwin
from calibration._session import Array
from optinc_hw.errors import LimitError
from optinc_hw.photonics.program import ProgrammedMatrix

Measure = Callable[[ProgrammedMatrix], Array]
"""Products (batch, r) that the chip gives for the cell's inputs, all of them finite."""


@dataclass(frozen=True)
class CellState:
    """Settings of a tile and what the chip made of them.

    Parameters
    ----------
    programmed
        The tile at these settings, with the digital gains and offsets that suit it best.
    settings
        Settings (H,) of all heaters in steps of the DACs; those of input modulators are 0.
    correction
        What the twin had learned before they were measured.
    power_w
        Powers (batch, H) in W of all heaters while the products were measured.
    products
        What the chip gave (batch, r), with these gains and offsets.
    cost
        Mean square of the weighted errors.
    """

    programmed: ProgrammedMatrix
    settings: Array
    correction: Array
    power_w: Array
    products: Array
    cost: float


class Cell:
    """One tile on the chip.

    Parameters
    ----------
    task
        What is wanted of it.
    dac
        Steps of the heaters.
    twin
        What is known of the chip; learns from all that is measured.
    measure
        Runs the task's inputs through the chip.
    rng
        Source of the search's starts.
    """

    def __init__(
        self, task: CellTask, dac: HeaterDac, twin: LearningTwin, measure: Measure, rng: np.random.Generator
    ) -> None:
        self._task, self._dac, self._twin, self._measure, self._rng = task, dac, twin, measure, rng
        self.measured = 0
        """Settings that were measured."""

    def at(self, programmed: ProgrammedMatrix) -> CellState:
        """Measure a tile at the settings nearest to its powers, within its limits."""
        return self._state(programmed, self._dac.settings(programmed.static_power_w, programmed.max_power_w))

    def train(self, start: CellState, settings: int, enough: float) -> CellState:
        """Correct settings by what the chip does.

        Parameters
        ----------
        start
            Where to start.
        settings
            Most settings that are measured.
        enough
            Rms of the weighted errors at which to stop.
        """
        best = start
        for _ in range(settings):
            if best.cost <= enough**2:
                break
            programmed = replace(best.programmed, parameters=self._twin.parameters)
            try:
                search = TwinSearch(programmed, self._task, self._dac, self._rng)
                moved = self._state(best.programmed, search.best(best.settings, best.power_w, best.products, enough))
            except LimitError:  # what was learned asks for more than heaters may have; the best so far stays
                break
            if moved.cost < best.cost:
                best = moved
        return best

    def _state(self, programmed: ProgrammedMatrix, settings: Array) -> CellState:
        """Measure settings, let the twin learn, and choose the digital gain and offset of every row."""
        tried = replace(programmed, parameters=self._twin.parameters, static_power_w=self._dac.power(settings))
        measured = self._measure(tried)
        self.measured += 1
        scale = tried.reference * tried.row_scale
        correction, power_w = self._twin.correction, tried.drive(self._task.amplitudes)
        self._twin.learn(power_w, measured + tried.leak, scale)
        gain, offset = self._task.lines(measured)
        corrected = replace(tried, row_scale=tried.row_scale * gain, leak=(tried.leak + offset) / gain)
        products = (measured - offset) / gain
        return CellState(corrected, settings, correction, power_w, products, self._task.cost(products))
