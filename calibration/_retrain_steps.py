"""Settings that are whole numbers: damped least squares on a lattice."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import qr

from calibration._session import Array

_NOTHING = 1e-12
"""Share of the largest diagonal element that makes the normal matrix regular where a setting changes nothing."""
_ROUNDS = 20
"""Moves of single settings after the rounding, for each setting at most."""


@dataclass(frozen=True)
class LinearModel:
    """What is left to correct, and how settings change it.

    Parameters
    ----------
    error
        Weighted errors (N,).
    slopes
        Their derivatives (N, F) by the settings.
    radians
        Phase in rad that one step of each setting gives (F,).
    settings
        Present settings (F,), real numbers of at least 0.
    largest
        Largest settings (F,).
    """

    error: Array
    slopes: Array
    radians: Array
    settings: Array
    largest: Array

    @cached_property
    def _short(self) -> tuple[Array, Array]:
        """Slopes and errors in as few rows as there are settings, with the same least squares."""
        if len(self.error) <= len(self.settings):
            return self.slopes, self.error
        q, r = np.linalg.qr(self.slopes)
        return r, q.T @ self.error

    @cached_property
    def _normal(self) -> tuple[Array, Array]:
        """Normal matrix (F, F) and right side (F,) without damping."""
        slopes, error = self._short
        return slopes.T @ slopes, slopes.T @ error

    def solve(self, damping: float, *, whole: bool) -> Array:
        """Return settings (F,) that make the errors small.

        Parameters
        ----------
        damping
            Weight of the squared phases, in rad, that are moved.
        whole
            Whether settings are whole numbers, as those of a DAC.
        """
        if not whole:
            return np.asarray(np.clip(self.settings - self._step(damping), 0.0, self.largest))
        slopes, error = self._short
        system = np.concatenate([slopes, np.diag(np.sqrt(damping) * self.radians)])
        wanted = system @ self.settings
        wanted[: len(error)] -= error
        return self._polished(system, wanted, self._rounded(system, wanted))

    def _step(self, damping: float) -> Array:
        """Solve the normal equations; settings that change nothing stay."""
        gram, pull = self._normal
        diagonal = np.diagonal(gram) + damping * self.radians**2
        system = gram.copy()
        np.fill_diagonal(system, diagonal + _NOTHING * diagonal.max())
        return np.asarray(np.linalg.solve(system, pull))

    def _rounded(self, system: Array, wanted: Array) -> Array:
        """Round one setting after the other; those still free make up for it (Babai's nearest plane)."""
        q, r, order = qr(system, mode="economic", pivoting=True)
        target, found, largest = q.T @ wanted, np.zeros(len(order)), self.largest[order]
        for k in reversed(range(len(order))):
            best = (target[k] - r[k, k + 1 :] @ found[k + 1 :]) / r[k, k]
            found[k] = min(max(round(best), 0.0), largest[k])
        settings = np.empty(len(order))
        settings[order] = found
        return settings

    def _polished(self, system: Array, wanted: Array, settings: Array) -> Array:
        """Move single settings as long as that helps."""
        gram, slope = system.T @ system, system.T @ (system @ settings - wanted)
        curvature = np.diagonal(gram).copy()
        for _ in range(_ROUNDS * len(settings)):
            moves = np.clip(np.rint(-slope / curvature), -settings, self.largest - settings)
            gains = -(slope + 0.5 * curvature * moves) * moves
            best = int(np.argmax(gains))
            if gains[best] <= 0.0:
                break
            settings[best] += moves[best]
            slope += moves[best] * gram[:, best]
        return settings
