"""The lasers in a simulated CoBrite chassis: settings with limits, tuning that takes time, light on the chip."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from optinc_hw.clock import Clock
from optinc_hw.units import dbm_to_watt, nm_to_m

LOWEST_THZ, HIGHEST_THZ, START_THZ = 191.5, 196.25, 193.4145
OFFSET_GHZ = 6.0
LOWEST_DBM, HIGHEST_DBM, START_DBM = 6.0, 15.5, 10.0
COMMAND_ERROR, WRONG_ARGUMENT_COUNT, POWER_DOWN, UNAUTHORISED, COMMUNICATION_LOCK = 100, 101, 104, 201, 204

_LIGHT_SPEED_NM_THZ = 299_792.458
_DARK_DBM = -60.0  # what the monitor tells when there is no light
_SMALL_CHANGE = 0.1  # time for a change of power or offset, as a share of that for a new frequency
_SLACK = 1e-4  # a limit itself must pass, also after it was rounded for the wire
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)

Light = Callable[[float, float, float], None]
"""Takes power in W, wavelength in m and the time in s from which on they hold."""


class CobriteError(Exception):
    """An error reply.

    Parameters
    ----------
    code
        Number in the reply.
    detail
        Text in the reply.
    """

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def nanometres(frequency_thz: float) -> float:
    """Convert a frequency in THz to the wavelength in nm; the same formula converts back."""
    return _LIGHT_SPEED_NM_THZ / frequency_thz


def parse_value(text: str, lowest: float, highest: float) -> float:
    """Parse a number in a range; raise CobriteError if it is none."""
    if _NUMBER.fullmatch(text) is None:
        raise CobriteError(COMMAND_ERROR, f"{text} is no number")
    value = float(text)
    if not lowest - _SLACK <= value <= highest + _SLACK:
        raise CobriteError(COMMAND_ERROR, f"{text} is not in {lowest:.4f}..{highest:.4f}")
    return value


def parse_state(text: str) -> bool:
    """Parse 0 or 1; raise CobriteError for anything else."""
    if text not in ("0", "1"):
        raise CobriteError(COMMAND_ERROR, f"{text} is neither 0 nor 1")
    return text == "1"


@dataclass(frozen=True)
class Configuration:
    """What ``CONF`` sets at once, in the units of the wire."""

    frequency_thz: float = START_THZ
    offset_ghz: float = 0.0
    power_dbm: float = START_DBM
    on: bool = False
    dither: bool = True


class LaserModule:
    """One laser; dark while it changes its frequency.

    Parameters
    ----------
    clock
        Tuning takes time on it.
    tuning_time_s
        Time for a new frequency or for switching on; other changes take a tenth. Without light nothing takes time.
    light
        Called with the light that leaves the laser, when it changes.
    """

    def __init__(self, clock: Clock, tuning_time_s: float, light: Light) -> None:
        self._clock = clock
        self._tuning_time_s = tuning_time_s
        self._light = light
        self.settings = Configuration()
        self.busy_until = clock.now()

    @property
    def busy(self) -> bool:
        """Whether the laser is tuning."""
        return self._clock.now() < self.busy_until

    @property
    def lit(self) -> bool:
        """Whether settled light comes out."""
        return self.settings.on and not self.busy

    @property
    def actual_dbm(self) -> float:
        """Reading of the power monitor."""
        return self.settings.power_dbm if self.lit else _DARK_DBM

    def apply(self, settings: Configuration) -> None:
        """Go to new settings."""
        before, now = self.settings, self._clock.now()
        self.settings = settings
        wavelength_m = nm_to_m(nanometres(settings.frequency_thz + settings.offset_ghz * 1e-3))
        if not settings.on:
            self.busy_until = now
            self._light(0.0, wavelength_m, now)
            return
        moved = not before.on or settings.frequency_thz != before.frequency_thz
        if moved:
            self._light(0.0, wavelength_m, now)
        if moved or (settings.offset_ghz, settings.power_dbm) != (before.offset_ghz, before.power_dbm):
            duration_s = self._tuning_time_s * (1.0 if moved else _SMALL_CHANGE)
            self.busy_until = max(self.busy_until, now + duration_s)
            self._light(dbm_to_watt(settings.power_dbm), wavelength_m, self.busy_until)
