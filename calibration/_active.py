"""Active design: which settings to measure next, where the twin is least sure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._arrays import fits, floats, heater_powers, integers, number
from calibration._mesh_linear import MeshPoint
from calibration._posterior import MeshPosterior
from calibration._retrain_checks import require_whole
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
        Largest total power in W, above 0; settings above it are scaled down to it.
    rng
        Random numbers.

    Returns
    -------
    tuple
        Heater powers (count, H) in W and lit ports (count,).

    Raises
    ------
    CalibrationError
        If counts are no whole numbers, or powers no finite ones of at least 0.
    """
    require_whole("count", count, 0)
    require_whole("ports", ports, 1)
    top = heater_powers("max_power_w", max_power_w, ("H",))
    if not len(top) or not number("max_total_power_w", max_total_power_w) > 0.0:
        raise CalibrationError(
            f"max_total_power_w must be above 0 W, and max_power_w one for each heater; got {max_total_power_w!r} and "
            f"{len(top)}: give the chip's limits"
        )
    power_w = rng.uniform(0.0, top, (count, len(top)))
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
        If arguments are no numbers, or shapes, lit ports or powers not those of the twin, or if there are fewer
        candidates than settings to choose.
    """
    power_w, lit, samples = _checked(posterior, power_w, lit, samples)
    if not whole_number(count, 1) or count > len(lit):
        raise CalibrationError(f"cannot choose {count!r} settings from {len(lit)} candidates; draw more candidates")
    predicted = MeshPoint(posterior.fit.space, posterior.fit.vector, power_w, lit).predicted
    deviations = posterior.predictive_deviations(samples, power_w, lit) / noise.sigma(predicted)
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


def _checked(
    posterior: MeshPosterior, power_w: Array, lit: NDArray[np.intp], samples: Array
) -> tuple[Array, NDArray[np.intp], Array]:
    ports, size = posterior.fit.parameters.ports, len(posterior.fit.vector)
    power = heater_powers("power_w", power_w, ("B", len(posterior.fit.parameters.offset)))
    chosen, drawn = integers("lit", lit), floats("samples", samples)
    if chosen.shape != (len(power),) or not ((chosen >= 0) & (chosen < ports)).all():
        raise CalibrationError(
            f"lit must be one of the ports 0..{ports - 1} for each of {len(power)} candidates, got shape {chosen.shape}"
            + (f" and values from {chosen.min()} to {chosen.max()}" if chosen.size else "")
        )
    if not fits(drawn, ("S", size)) or not len(drawn) or not np.isfinite(drawn).all():
        raise CalibrationError(f"samples must be finite and (S, {size}) as the posterior draws them, got {drawn.shape}")
    return power, chosen, drawn


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
