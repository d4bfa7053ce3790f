"""Light that enters the hidden chip: as it is, as it will be, or as a sweeping laser lets it change."""

import math
from collections.abc import Callable

Light = tuple[float, float]
"""Power in W and wavelength in m."""


class ChipLight:
    """Power and wavelength as functions of time, from the last command on.

    Parameters
    ----------
    wavelength_m
        Wavelength in m of the light to begin with, which has no power.
    """

    def __init__(self, wavelength_m: float) -> None:
        self._before: Light = (0.0, wavelength_m)
        self._after: Light = self._before
        self._change_s = -math.inf
        self._course: Callable[[float], Light] | None = None

    def at(self, time_s: float) -> Light:
        """Return power in W and wavelength in m at a time in s, not before that of the last command."""
        if self._course is not None:
            return self._course(time_s)
        return self._after if self._change_s <= time_s else self._before

    def change(self, now_s: float, change_s: float, power_w: float, wavelength_m: float) -> None:
        """Let the light change at ``change_s``; replaces what was still to come at ``now_s``."""
        self._before, self._after = self.at(now_s), (power_w, wavelength_m)
        self._change_s = change_s
        self._course = None

    def follow(self, course: Callable[[float], Light]) -> None:
        """Let the light change by itself from now on."""
        self._course = course

    def steady_until(self, time_s: float) -> float:
        """Return the time in s of the next change after ``time_s``; ``time_s`` itself if the light moves."""
        if self._course is not None:
            return time_s
        return self._change_s if time_s < self._change_s else math.inf
