"""Active design: which settings to measure next, where the twin is least sure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._arrays import floats
from calibration._checks import require_whole
from calibration._mesh_checks import checked_settings, require_limits
from calibration._mesh_linear import MeshPoint
from calibration._posterior import MeshPosterior
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError
from optinc_hw.onn._checks import whole_number


@dataclass(frozen=True)
class Design:
    """Settings chosen from candidates.

    Parameters
    ----------
    chosen
        Indices of the chosen candidates, the most informative first.
    information
        Expected information (candidates,) of each candidate alone, in nats.
    """

    chosen: NDArray[np.intp]
    information: Array


def random_candidates(
    count: int, ports: int, max_power_w: Array, max_total_power_w: float, rng: np.random.Generator
) -> tuple[Array, NDArray[np.intp]]:
    """Draw settings with uniform heater powers, and lit ports in turn.

    Parameters
    ----------
    count
        Number of settings.
    ports
        Number of ports.
    max_power_w
        Largest power (H,) of each heater in W.
    max_total_power_w
        Largest total power in W; settings above it are scaled down to it.
    rng
        Random numbers.

    Raises
    ------
    CalibrationError
        If a limit is negative or NaN, or a number is none of the whole ones that make sense.

    Returns
    -------
    tuple
        Heater powers (count, H) in W and lit ports (count,).
    """
    require_whole("count", count, 0)
    require_whole("ports", ports, 1)
    heaters = floats("max_power_w", max_power_w).size
    max_power_w = require_limits(max_power_w, max_total_power_w, heaters)
    power_w = rng.uniform(0.0, max_power_w, (count, len(max_power_w)))
    total = power_w.sum(axis=1, keepdims=True)
    power_w *= np.minimum(1.0, max_total_power_w / np.maximum(total, np.finfo(float).tiny))
    return power_w, rng.permutation(np.arange(count) % ports)


def choose_settings(
    posterior: MeshPosterior,
    noise: NoiseModel,
    power_w: Array,
    lit: NDArray[np.intp],
    count: int,
    samples: Array,
) -> Design:
    """Choose the settings whose readings are expected to tell most about the twin.

    The information of a reading is ``log det(1 + V / sigma^2) / 2`` with V the covariance of its predicted outputs,
    estimated from posterior samples.  Settings are taken one after the other, and what the last one will tell is taken
    out of the samples; when half of the samples' freedom is used up it is given back, since so few samples tell no
    more.

    Parameters
    ----------
    posterior
        Of the fit so far.
    noise
        Noise of a reading.
    power_w, lit
        Candidates: heater powers (B, H) in W and lit ports (B,).
    count
        Number of settings to choose.
    samples
        Posterior samples (S, size); twice as many as ports or more.

    Raises
    ------
    CalibrationError
        If there are fewer candidates than settings to choose, or they or the samples are none of this fit's.
    """
    power_w, lit = checked_settings(power_w, lit, posterior.fit.space.start.layout)
    if not whole_number(count, 1) or count > len(lit):
        raise CalibrationError(f"cannot choose {count!r} settings from {len(lit)} candidates; draw more candidates")
    deviations = posterior.predictive_deviations(samples, power_w, lit)
    predicted = MeshPoint(posterior.fit.space, posterior.fit.vector, power_w, lit).predicted
    deviations = deviations / noise.sigma(predicted)
    seen = np.moveaxis(deviations, 0, -1) / np.sqrt(len(samples))
    alone = _information(seen, np.eye(len(samples)))
    chosen: list[int] = []
    left = np.ones(len(lit), dtype=np.bool_)
    known = _Known(len(samples))
    while len(chosen) < count:
        if known.used_up:
            known = _Known(len(samples))
        gain = np.where(left, _information(seen, known.rest), -np.inf)
        best = int(np.argmax(gain))
        chosen.append(best)
        left[best] = False
        known.learn(seen[best])
    return Design(np.array(chosen, dtype=np.intp), alone)


class _Known:
    """What chosen readings leave of the freedom (S, S) of the samples."""

    def __init__(self, size: int) -> None:
        self.rest: Array = np.eye(size)
        self._size = size

    @property
    def used_up(self) -> bool:
        """Whether half of the samples' freedom is gone: further correlations would be those of too few samples."""
        return bool(np.trace(self.rest) < 0.5 * self._size)

    def learn(self, rows: Array) -> None:
        """Take out what readings with these rows (n, S) tell."""
        gain = self.rest @ rows.T
        inner = np.eye(len(rows)) + rows @ gain
        self.rest = self.rest - gain @ np.linalg.solve(inner, gain.T)


def _information(rows: Array, rest: Array) -> Array:
    """Information (B,) in nats of readings with rows (B, n, S)."""
    inner = rows @ rest @ np.swapaxes(rows, 1, 2)
    inner += np.eye(rows.shape[1])
    return np.asarray(0.5 * np.linalg.slogdet(inner)[1])
