"""Discovery on a bench: everything before a calibration, one step after the other."""

import numpy as np
from numpy.typing import NDArray

from calibration._calibrate import silent
from calibration._checks import require_whole
from calibration._discovery import Discovery, judge
from calibration._discovery_electrical import ElectricalFindings, discover_electrical
from calibration._discovery_map import find_channels
from calibration._discovery_state import require_bare
from calibration._leaving import dark_afterwards
from calibration._probe import BenchProbe
from calibration._session import Progress
from calibration._twin_fit import NoiseModel
from optinc_hw.bench import Bench

TYPICAL_NOISE = 1e-3
"""Relative noise assumed where no detector was bright enough to show it."""


def discover(bench: Bench, *, seed: int = 0, progress: Progress | None = None) -> Discovery:
    """Find out what hangs where on a bare mesh, what is dead, and whether light, noise and settling are right.

    Raises heaters and laser; leaves the chip dark and cold.  Changes no file: see `propose_chip_file`.

    Parameters
    ----------
    bench
        An open bench of a bare mesh.
    seed
        Seed of the random settings.
    progress
        Called with (stage, done, total), if given.

    Raises
    ------
    CalibrationError
        If the chip is no bare mesh, no heater takes current, or the seed is no whole number of at least 0.
    InstrumentError
        If an instrument fails.
    """
    require_whole("seed", seed, 0)
    require_bare(bench.layout)
    with dark_afterwards(bench):
        electrical = discover_electrical(bench)
        usable = np.array([state == "ok" for state in electrical.state])
        found = find_channels(
            _probe(bench, electrical, usable, progress or silent), noise_of_readings(electrical),
            np.random.default_rng(seed), ~usable,
        )  # fmt: skip
    return judge(bench.layout, found, electrical)


def _probe(bench: Bench, electrical: ElectricalFindings, usable: NDArray[np.bool_], progress: Progress) -> BenchProbe:
    ohm = np.where(usable, electrical.resistance_ohm, bench.description.chip.nominal.resistance_ohm)
    return BenchProbe(bench, ohm, np.zeros(len(ohm)), np.nan_to_num(electrical.dark_w), progress)


def noise_of_readings(electrical: ElectricalFindings) -> NoiseModel:
    """Noise common to all detectors: medians of those that see light."""
    seen = electrical.relative_noise[np.isfinite(electrical.relative_noise)]
    relative = float(np.median(seen)) if len(seen) else TYPICAL_NOISE
    floor = float(np.nanmedian(electrical.dark_noise_w))
    return NoiseModel(max(relative, np.finfo(float).eps), max(floor, np.finfo(float).tiny))
