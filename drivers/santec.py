"""Santec TSL-570 tunable laser."""

import math
import re
from typing import ClassVar

from qcodes.instrument import InstrumentBaseKWArgs
from qcodes.validators import Bool, Numbers
from typing_extensions import Unpack

from drivers._parsing import HIGHEST_LEVEL_DBM, is_reading, parse_flag, parse_level, parse_number, parse_reading
from drivers._scpi import ScpiInstrument
from drivers.protocols import SimulatedAs
from optinc_hw.errors import DeviceError, LimitError
from optinc_hw.units import WATT_PER_MILLIWATT, dbm_to_watt, m_to_nm, nm_to_m, watt_to_dbm

_MODEL = re.compile(r"TSL-(?:550|570|710|770)")
_POLL_S = 0.01
_WAVELENGTH_TOLERANCE_M = 0.3e-12
_POWER_TOLERANCE_DB = 0.02
_NANOMETRES = (400.0, 3000.0)
"""Numbers in this range are wavelengths in nm; 193 (THz) is outside."""


class SantecTSL570(ScpiInstrument):
    """Tunable laser; implements :class:`drivers.protocols.Laser`.

    The laser has two command sets, one with nanometres and one with metres, and two power units; both can be switched
    at its front panel. The driver changes neither: it asks before every set. Connecting only asks (``*IDN?``);
    closing shuts the shutter if this session changed the output.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        VISA resource, such as ``TCPIP0::192.168.1.100::5000::SOCKET``.
    timeout
        Time in s that a complete reply may take.
    max_power
        Highest power in W that may be set; 20 mW, the laser's own maximum, by default.
    visalib
        pyvisa library.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    LinkError
        If the laser cannot be reached or does not answer.
    IdentityError
        If something else answers.
    """

    simulated_as: ClassVar = SimulatedAs(kind="santec_tsl570")

    _error_query = ":SYST:ERR?"

    def __init__(
        self,
        name: str,
        address: str,
        *,
        timeout: float = 2.0,
        max_power: float = 20e-3,
        visalib: str = "@py",
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        super().__init__(name, **kwargs)
        self.address = address
        self.max_power = max_power
        self._driven = False
        self._target_wavelength: float | None = None
        self._target_power: float | None = None
        self._attach(self._open_link(address, visalib, b"\r", timeout))
        self._add_parameters()

    def _add_parameters(self) -> None:
        self.wavelength = self.add_parameter(
            "wavelength",
            label="Wavelength",
            unit="m",
            vals=Numbers(min_value=nm_to_m(_NANOMETRES[0]), max_value=nm_to_m(_NANOMETRES[1])),
            get_cmd=self._ask_wavelength,
            set_cmd=self.set_wavelength,
            docstring="Control the wavelength; setting starts tuning, wait_settled() waits for its end.",
        )
        self.power = self.add_parameter(
            "power",
            label="Power setpoint",
            unit="W",
            vals=Numbers(min_value=0.0),
            get_cmd=self._ask_power,
            set_cmd=self.set_power,
            docstring="Control the power setpoint.",
        )
        self.power_dbm = self.add_parameter(
            "power_dbm",
            label="Power setpoint",
            unit="dBm",
            vals=Numbers(),
            get_cmd=lambda: watt_to_dbm(self._ask_power()),
            set_cmd=lambda level: self.set_power(dbm_to_watt(level)),
            snapshot_value=False,
            docstring="Control the power setpoint as a level.",
        )
        self.power_actual = self.add_parameter(
            "power_actual",
            label="Monitored power",
            unit="W",
            vals=Numbers(),
            get_cmd=self._ask_actual_power,
            snapshot_value=False,
            docstring="Measure the power at the laser's own monitor; NaN if that has no valid reading.",
        )
        self.output = self.add_parameter(
            "output",
            label="Laser diode",
            unit="",
            vals=Bool(),
            get_cmd=lambda: self._live_link().query(":POW:STAT?", parse_flag),
            set_cmd=self._set_output,
            docstring="Control the laser diode.",
        )
        self.shutter_open = self.add_parameter(
            "shutter_open",
            label="Shutter open",
            unit="",
            vals=Bool(),
            # On the wire 0 is open and 1 is closed.
            get_cmd=lambda: not self._live_link().query(":POW:SHUT?", parse_flag),
            set_cmd=self._set_shutter,
            docstring="Control the shutter; True lets light out.",
        )

    @property
    def max_power(self) -> float:
        """Highest power in W that may be set."""
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
            If this is no wavelength in m of a telecom laser at all; nothing was changed.
        DeviceError
            If the laser refuses, for example because the wavelength is out of its range.
        """
        if not nm_to_m(_NANOMETRES[0]) <= wavelength_m <= nm_to_m(_NANOMETRES[1]):
            raise LimitError(
                f"{self.name}: wavelength cannot be {wavelength_m} m; give metres, such as 1550e-9. Nothing was changed"
            )
        with self._live_link().lock:
            metres = self._uses_metres()
            value = f"{wavelength_m:.7E}" if metres else f"{m_to_nm(wavelength_m):.4f}"
            self._driven = True
            self._write_checked(f":WAV {value}")
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
            level = f"{power_w / WATT_PER_MILLIWATT:.4f}" if self._uses_milliwatts() else f"{watt_to_dbm(power_w):.2f}"
            self._driven = True
            self._write_checked(f":POW {level}")
            self._target_power = power_w
            self.power.cache.set(power_w)
            self.power_dbm.cache.set(watt_to_dbm(power_w))

    def set_light(self, on: bool) -> None:
        """Switch the diode on and open the shutter, or close the shutter and leave the diode warm.

        Raises
        ------
        DeviceError
            If the laser refuses or did not do it.
        """
        with self._live_link().lock:
            if on:
                self._set_output(True)
            self._set_shutter(on)

    def wait_settled(self, deadline_s: float) -> None:
        """Wait on the clock until the laser has settled, and verify the wavelength and power that were set.

        Raises
        ------
        DeviceError
            If it has not settled after ``deadline_s`` s, or settled at something else than was set.
        """
        link = self._live_link()
        end = self.clock.now() + deadline_s
        while not link.query("*OPC?", parse_flag):
            if self.clock.now() >= end:
                raise link.device_error(f"the laser has not settled within {deadline_s:g} s")
            self.clock.sleep(_POLL_S)
        with link.lock:
            self._verify_wavelength()
            self._verify_power()

    def make_safe(self) -> None:
        """Close the shutter, opening a broken link anew once if need be.

        Raises
        ------
        InstrumentError
            If the shutter cannot be closed (a LinkError if the link is dead).
        """
        link = self._live_link()
        with link.lock:
            if link.broken:
                self.reconnect()
            self._set_shutter(False)

    def _verify_wavelength(self) -> None:
        if self._target_wavelength is None:
            return
        actual = self._ask_wavelength()
        if abs(actual - self._target_wavelength) > _WAVELENGTH_TOLERANCE_M:
            raise self._not_applied("wavelength", actual, self._target_wavelength, "m")

    def _verify_power(self) -> None:
        if self._target_power is None:
            return
        actual = self._ask_power()
        if abs(watt_to_dbm(actual) - watt_to_dbm(self._target_power)) > _POWER_TOLERANCE_DB:
            raise self._not_applied("power", actual, self._target_power, "W")

    def _not_applied(self, parameter: str, actual: object, wanted: object, unit: str) -> DeviceError:
        return self._live_link().device_error(
            f"{parameter} is {actual} {unit} although {wanted} {unit} was set; set it again, and check that nobody "
            f"else uses the laser"
        )

    def _set_output(self, on: bool) -> None:
        self._switch(":POW:STAT", "laser diode", on)
        self.output.cache.set(on)

    def _set_shutter(self, is_open: bool) -> None:
        self._switch(":POW:SHUT", "shutter", not is_open)
        self.shutter_open.cache.set(is_open)

    def _switch(self, command: str, what: str, state: bool) -> None:
        link = self._live_link()
        with link.lock:
            self._driven = True
            self._write_checked(f"{command} {int(state)}")
            actual = link.query(f"{command}?", parse_flag)
            if actual != state:
                raise self._not_applied(f"{what} ({command})", int(actual), int(state), "")

    def _ask_wavelength(self) -> float:
        return self._live_link().query(":WAV?", _parse_wavelength)[0]

    def _uses_metres(self) -> bool:
        """Tell the SCPI from the Legacy command set by the unit of the wavelength that the laser reports now."""
        return self._live_link().query(":WAV?", _parse_wavelength)[1]

    def _uses_milliwatts(self) -> bool:
        return self._live_link().query(":POW:UNIT?", parse_flag)

    def _ask_power(self) -> float:
        link = self._live_link()
        with link.lock:
            if self._uses_milliwatts():
                return link.query(":POW?", parse_number) * WATT_PER_MILLIWATT
            return dbm_to_watt(link.query(":POW?", parse_level))

    def _ask_actual_power(self) -> float:
        link = self._live_link()
        with link.lock:
            milliwatts = self._uses_milliwatts()
            value = link.query(":POW:ACT?", parse_reading)
        if milliwatts:
            return value * WATT_PER_MILLIWATT
        return dbm_to_watt(value) if abs(value) <= HIGHEST_LEVEL_DBM else math.nan

    def _is_driven(self) -> bool:
        return self._driven

    def _identify(self) -> None:
        self._check_identity(self.address, ("SANTEC",), _MODEL)

    def _snapshot_complete(self) -> bool:
        return all(
            parameter.cache.valid
            for parameter in (self.IDN, self.wavelength, self.power, self.output, self.shutter_open)
        )

    def _refresh(self) -> None:
        for parameter in (self.IDN, self.wavelength, self.power, self.output, self.shutter_open):
            parameter.get()


def _parse_wavelength(text: str) -> tuple[float, bool]:
    """Parse a wavelength to m, and tell whether the laser speaks in metres (else nanometres)."""
    value = parse_number(text)
    if _NANOMETRES[0] <= value <= _NANOMETRES[1]:
        return nm_to_m(value), False
    if nm_to_m(_NANOMETRES[0]) <= value <= nm_to_m(_NANOMETRES[1]):
        return value, True
    raise ValueError(f"{text!r} is a wavelength neither in nm nor in m")
