"""Probes that keep, and give back, what was measured."""

import numpy as np
from numpy.typing import NDArray

from calibration._journal import Journal
from calibration._journal_run import READINGS
from calibration._probe import Probe
from calibration._session import Array
from optinc_hw.photonics import ChipLayout


class JournaledProbe:
    """A probe whose sweeps are in a journal: stored ones are given back, others measured and stored.

    Parameters
    ----------
    probe
        Measures.
    journal
        Keeps; other sweeps of the run may be in it too.
    """

    def __init__(self, probe: Probe, journal: Journal) -> None:
        self._probe, self._journal = probe, journal
        self.layout = probe.layout
        self.max_power_w = probe.max_power_w
        self.max_total_power_w = probe.max_total_power_w
        self.nominal_efficiency = probe.nominal_efficiency
        self.readings = 0
        """Readings measured or given back."""

    def measure(self, stage: str, power_w: Array, lit: NDArray[np.intp]) -> Array:
        """As `Probe.measure`; raises CalibrationError also where `Journal.step` does."""
        if not len(lit):
            return _nothing(self.layout)
        found = self._journal.step(
            stage, {"power_w": power_w, "lit": lit}, lambda: {READINGS: self._probe.measure(stage, power_w, lit)}
        )[READINGS]
        self.readings += len(found)
        return found


class ReplayProbe:
    """A probe without a bench: it gives the sweeps of a stored run back, in order, to the code that asked for them.

    Parameters
    ----------
    journal
        A replay of the run.
    """

    def __init__(self, journal: Journal) -> None:
        header = journal.header
        self._journal = journal
        self.layout = header.layout
        self.max_power_w = np.array(header.max_power_w)
        self.max_total_power_w = header.max_total_power_w
        self.nominal_efficiency = np.array(header.nominal_efficiency)
        self.readings = 0
        """Readings given back."""

    def measure(self, stage: str, power_w: Array, lit: NDArray[np.intp]) -> Array:
        """Return what the next stored sweep read.

        Raises
        ------
        CalibrationError
            If that sweep asked for something else, or the stored data end.
        """
        if not len(lit):
            return _nothing(self.layout)
        found = self._journal.step(stage, {"power_w": power_w, "lit": lit}, dict)[READINGS]
        self.readings += len(found)
        return found


def _nothing(layout: ChipLayout) -> Array:
    """Return the readings of no settings, which are no sweep."""
    return np.empty((0, len(layout.detectors)))
