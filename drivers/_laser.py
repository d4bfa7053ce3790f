"""What drivers of tunable lasers share: limits, targets, waiting on the clock, verification, the safe state."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from qcodes.instrument import InstrumentBaseKWArgs
from qcodes.validators import Numbers
from typing_extensions import Unpack

from drivers._instrument import LinkedInstrument
from drivers._parsing import HIGHEST_LEVEL_DBM, is_reading
from optinc_hw.errors import DeviceError, LimitError
from optinc_hw.units import db_to_ratio, dbm_to_watt, watt_to_dbm

HIGHEST_POWER_W = 1.0
"""More than any of these lasers emits; a number beyond is a mistake of units. The limit in force is ``max_power``."""


class LaserInstrument(LinkedInstrument):
    """A tunable laser; implements :class:`drivers.protocols.Laser` but for the words on the wire.

    Parameters
    ----------
    name
        Name of the instrument.
    max_power
        Highest power in W that may be set, and with which light may be let out.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    LimitError
        If ``max_power`` is not above 0 W.
    """

    plausible_wavelengths: ClassVar[tuple[float, float]] = (400e-9, 3000e-9)
    """Wavelengths in m outside of which a value must be a mistake of units."""

    wavelength_tolerance: ClassVar[float] = 0.3e-12
    """Largest error in m of a settled wavelength."""

    power_tolerance_db: ClassVar[float] = 0.02
    """Largest error in dB of a settled power."""

    poll_interval: ClassVar[float] = 0.01
    """Time in s between two questions whether the laser is done."""

    def __init__(self, name: str, max_power: float, **kwargs: Unpack[InstrumentBaseKWArgs]) -> None:
        super().__init__(name, **kwargs)
        self.max_power = max_power
        self._driven = False
        self._target_wavelength: float | None = None
        self._target_power: float | None = None

    def _add_light_parameters(self) -> None:
        """Add the parameters that every tunable laser has."""
        shortest, longest = self.plausible_wavelengths
        self.wavelength = self.add_parameter(
            "wavelength",
            label="Wavelength in vacuum",
            unit="m",
            vals=Numbers(min_value=shortest, max_value=longest),
            get_cmd=self._ask_wavelength,
            set_cmd=self.set_wavelength,
            docstring="Control the wavelength; setting starts tuning, wait_settled() waits for its end.",
        )
        self.wavelength_error = self.add_parameter(
            "wavelength_error",
            label="Residual wavelength error",
            unit="m",
            vals=Numbers(),
            get_cmd=self._ask_wavelength_error,
            snapshot_value=False,
            docstring="Measure by how much the wavelength differs from the one set; NaN if this session set none.",
        )
        self.power = self.add_parameter(
            "power",
            label="Power setpoint",
            unit="W",
            vals=Numbers(min_value=0.0, max_value=HIGHEST_POWER_W),
            get_cmd=self._ask_power,
            set_cmd=self.set_power,
            docstring="Control the power setpoint.",
        )
        self.power_dbm = self.add_parameter(
            "power_dbm",
            label="Power setpoint",
            unit="dBm",
            vals=Numbers(min_value=-HIGHEST_LEVEL_DBM, max_value=watt_to_dbm(HIGHEST_POWER_W)),
            get_cmd=self._ask_level,
            set_cmd=lambda level: self.set_power(dbm_to_watt(level)),
            snapshot_value=False,
            docstring="Control the power setpoint as a level; NaN for a power that has none.",
        )

    @property
    def max_power(self) -> float:
        """Highest power in W that may be set, and with which light may be let out."""
        return self._max_power

    @max_power.setter
    def max_power(self, watts: float) -> None:
        if not (watts > 0.0 and is_reading(watts)):
            raise LimitError(f"{self.name}: max_power cannot be {watts} W; give a power above 0 W")
        self._max_power = float(watts)

    def set_wavelength(self, wavelength_m: float) -> None:
        """Start tuning to a wavelength in m; :meth:`wait_settled` waits for the end and verifies it.

        Raises
        ------
        LimitError
            If the laser cannot have this wavelength; nothing was changed.
        DeviceError
            If the laser refuses.
        """
        self._check_wavelength(wavelength_m)
        with self._live_link().lock:
            self._driven = True
            self._send_wavelength(wavelength_m)
            self._target_wavelength = wavelength_m
            self.wavelength.cache.set(wavelength_m)

    def set_power(self, power_w: float) -> None:
        """Set the power setpoint in W.

        Raises
        ------
        LimitError
            If the power is not above 0 W or exceeds ``max_power``; nothing was changed.
        DeviceError
            If the laser refuses.
        """
        # 1e-9: a limit given in dBm must accept its own value after conversion.
        if not 0.0 < power_w <= self._max_power * (1.0 + 1e-9):
            raise LimitError(
                f"{self.name}: power cannot be {power_w:g} W; the limits are above 0 W and up to "
                f"{self._max_power:g} W. Nothing was changed; for darkness use set_light(False)"
            )
        with self._live_link().lock:
            self._driven = True
            self._send_power(power_w)
            self._target_power = power_w
            self.power.cache.set(power_w)
            self.power_dbm.cache.set(watt_to_dbm(power_w))

    def set_light(self, on: bool) -> None:
        """Let light out, or shut it off; what stays on behind the shutter is up to the laser.

        Raises
        ------
        LimitError
            If the laser would emit more than ``max_power``; nothing was changed.
        DeviceError
            If the laser refuses or did not do it.
        """
        with self._live_link().lock:
            if on:
                self._check_emission()
            self._driven = True
            self._emit(on)

    def wait_settled(self, deadline_s: float) -> None:
        """Wait on the clock until the laser has settled, and verify the wavelength and power that were set.

        Raises
        ------
        DeviceError
            If it has not settled after ``deadline_s`` s, or settled at something else than was set.
        """
        self._wait_until(self._settled, deadline_s, "settled")
        with self._live_link().lock:
            self._verify_wavelength()
            self._verify_power()

    def make_safe(self) -> None:
        """Shut the light off, opening a broken link anew once if need be.

        Raises
        ------
        InstrumentError
            If that is not possible (a LinkError if the link is dead).
        """
        link = self._live_link()
        with link.lock:
            if link.broken:
                self.reconnect()
            self._emit(False)

    def _wait_until(self, done: Callable[[], bool], deadline_s: float, what: str) -> None:
        """Poll ``done`` on the clock; raise DeviceError that the laser has not ``what`` after ``deadline_s`` s."""
        end = self.clock.now() + deadline_s
        while not done():
            if self.clock.now() >= end:
                raise self._live_link().device_error(f"the laser has not {what} within {deadline_s:g} s")
            self.clock.sleep(self.poll_interval)

    def _check_wavelength(self, wavelength_m: float) -> None:
        """Raise LimitError for a wavelength in m that the laser cannot have."""
        shortest, longest = self.plausible_wavelengths
        if not shortest <= wavelength_m <= longest:
            raise LimitError(
                f"{self.name}: wavelength cannot be {wavelength_m:.9g} m; the limits are {shortest:g} m and "
                f"{longest:g} m. Nothing was changed; give metres, such as 1550e-9"
            )

    def _check_emission(self) -> None:
        """Raise LimitError if light that is let out now would have more than ``max_power``."""
        power_w = self._ask_emitted_power()
        if self._exceeds_limit(power_w):
            raise LimitError(
                f"{self.name}: the laser is set to emit {power_w:g} W, but max_power is {self._max_power:g} W. "
                f"Nothing was changed; set a lower power first"
            )

    def _exceeds_limit(self, power_w: float) -> bool:
        """Tell whether a power in W that the laser reports is above ``max_power`` by more than rounding."""
        return power_w > self._max_power * db_to_ratio(self.power_tolerance_db)

    def _verify_wavelength(self) -> None:
        if self._target_wavelength is None:
            return
        actual = self._ask_wavelength()
        self.wavelength.cache.set(actual)
        self.wavelength_error.cache.set(actual - self._target_wavelength)
        if abs(actual - self._target_wavelength) > self.wavelength_tolerance:
            raise self._not_applied("wavelength", actual, self._target_wavelength, "m")

    def _verify_power(self) -> None:
        if self._target_power is None:
            return
        actual = self._ask_power()
        if not actual > 0.0 or abs(watt_to_dbm(actual) - watt_to_dbm(self._target_power)) > self.power_tolerance_db:
            raise self._not_applied("power", actual, self._target_power, "W")

    def _not_applied(self, parameter: str, actual: object, wanted: object, unit: str) -> DeviceError:
        return self._live_link().device_error(
            f"{parameter} is {actual} {unit} although {wanted} {unit} was set; set it again, and check that nobody "
            f"else uses the laser"
        )

    def _ask_level(self) -> float:
        power_w = self._ask_power()
        return watt_to_dbm(power_w) if power_w > 0.0 else math.nan

    def _ask_wavelength_error(self) -> float:
        with self._live_link().lock:
            target = self._target_wavelength
            return math.nan if target is None else self._ask_wavelength() - target

    def _ask_emitted_power(self) -> float:
        """Ask for the power in W with which light would come out; the setpoint, where nothing else decides."""
        return self._ask_power()

    def _is_driven(self) -> bool:
        return self._driven

    @abstractmethod
    def _send_wavelength(self, wavelength_m: float) -> None:
        """Send a wavelength in m that is within limits, and check that the laser took it."""

    @abstractmethod
    def _send_power(self, power_w: float) -> None:
        """Send a power setpoint in W that is within limits, and check that the laser took it."""

    @abstractmethod
    def _ask_wavelength(self) -> float:
        """Ask for the wavelength in m."""

    @abstractmethod
    def _ask_power(self) -> float:
        """Ask for the power setpoint in W."""

    @abstractmethod
    def _settled(self) -> bool:
        """Ask whether tuning and power control have come to rest."""

    @abstractmethod
    def _emit(self, on: bool) -> None:
        """Let light out or shut it off, and check that the laser did it; darkness must need no earlier command."""
