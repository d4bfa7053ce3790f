"""ID Photonics CoBrite DX, DX2 and MX tunable lasers."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from qcodes.instrument import InstrumentBaseKWArgs
from qcodes.validators import Bool, Ints, Numbers, Validator
from typing_extensions import Unpack

from drivers._cobrite_place import CobritePlace
from drivers._cobrite_protocol import (
    HZ_PER_GHZ,
    HZ_PER_THZ,
    parse_configuration,
    parse_dither,
    parse_measured_level,
    parse_monitor,
)
from drivers._parsing import parse_flag, parse_integer, parse_level, parse_number
from drivers.protocols import SimulatedAs
from optinc_hw.errors import LimitError
from optinc_hw.units import dbm_to_watt, m_to_hz, m_to_nm, nm_to_m, watt_to_dbm

_LIGHT_SPEED_M_S = 299_792_458.0
_FREQUENCY_TOLERANCE_HZ = 4e7
_OFFSET_TOLERANCE_HZ = 1e6
_SLACK = 1e-9
"""Relative; a limit itself must pass after its conversion."""

_WIDEST_OFFSET_HZ = 100e9
"""Wider than any channel grid; the laser itself takes a few GHz."""


class CobriteLaser(CobritePlace):
    """One laser of a CoBrite chassis; implements :class:`drivers.protocols.Laser`.

    There is no shutter: darkness is the laser switched off. Connecting only asks (``*IDN?``, ``LAY?``, ``LIM?``) and,
    unlike the vendor's driver, neither resets the session nor touches other lasers of the chassis; closing switches
    this laser off if this session changed it. Every value that is set is read back. Wavelength and frequency are
    those without ``frequency_offset``.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        VISA resource, such as ``TCPIP0::192.168.1.99::2000::SOCKET``.
    model
        ``"DX"``, ``"DX2"`` or ``"MX"``.
    port
        Chassis, slot and device of the laser, each from 1.
    timeout
        Time in s that a complete reply may take.
    max_power
        Highest power in W that may be set; 40 mW, above what these lasers give, by default.
    visalib
        pyvisa library.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    ConfigurationError
        If the model or the form of the port is unknown.
    LinkError
        If the chassis cannot be reached or does not answer.
    IdentityError
        If something else answers, or it has no laser at this port.
    """

    simulated_as: ClassVar = SimulatedAs(kind="cobrite", option_keys=("model", "port"))

    poll_interval = 0.05

    def __init__(
        self,
        name: str,
        address: str,
        *,
        model: str = "DX",
        port: Sequence[int] = (1, 1, 1),
        timeout: float = 2.0,
        max_power: float = 40e-3,
        visalib: str = "@py",
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        super().__init__(
            name, address, model=model, port=port, timeout=timeout, max_power=max_power, visalib=visalib, **kwargs
        )
        self._add_light_parameters()
        self._add_tuning_parameters()
        self._add_state_parameters()
        self._add_readings()

    def _add_tuning_parameters(self) -> None:
        shortest, longest = self.plausible_wavelengths
        self.frequency = self.add_parameter(
            "frequency",
            label="Optical frequency",
            unit="Hz",
            vals=Numbers(m_to_hz(longest), m_to_hz(shortest)),
            get_cmd=lambda: self._ask("FREQ?", parse_number) * HZ_PER_THZ,
            set_cmd=self.set_frequency,
            docstring="Control the frequency; setting starts tuning, wait_settled() waits for its end.",
        )
        self.frequency_offset = self.add_parameter(
            "frequency_offset",
            label="Frequency offset",
            unit="Hz",
            vals=Numbers(-_WIDEST_OFFSET_HZ, _WIDEST_OFFSET_HZ),
            get_cmd=lambda: self._ask("OFF?", parse_number) * HZ_PER_GHZ,
            set_cmd=self._set_offset,
            docstring="Control the fine tuning, which adds to the frequency.",
        )

    def _add_state_parameters(self) -> None:
        self.output = self.add_parameter(
            "output",
            label="Laser output",
            unit="",
            vals=Bool(),
            get_cmd=lambda: self._ask("STAT?", parse_flag),
            set_cmd=self.set_light,
            docstring="Control the laser output.",
        )
        self.dither = self.add_parameter(
            "dither",
            label="Dither",
            unit="",
            vals=Bool(),
            get_cmd=lambda: self._ask("DIT?", parse_dither),
            set_cmd=self._set_dither,
            docstring="Control the dither of the wavelength lock; lasers that cannot do without it always say True.",
        )

    def _add_readings(self) -> None:
        """Add the parameters that can only be asked for; each is one exchange, and no snapshot makes it."""

        def monitor(index: int) -> Callable[[], float]:
            return lambda: self._ask("MON?", parse_monitor)[index]

        # Any: each validator has its own type of value.
        readings: tuple[tuple[str, str, str, Callable[[], object], Validator[Any], str], ...] = (
            (
                "power_actual",
                "Monitored power",
                "W",
                lambda: self._ask("APOW?", parse_measured_level),
                Numbers(),
                "Measure the power at the laser's own monitor; NaN if that has no valid reading.",
            ),
            ("chip_temperature", "Laser chip temperature", "K", monitor(0), Numbers(), "Measure the laser chip."),
            ("base_temperature", "Module base temperature", "K", monitor(1), Numbers(), "Measure the module's base."),
            ("diode_current", "Laser diode current", "A", monitor(2), Numbers(), "Measure the current of the diode."),
            ("cooler_current", "Cooler current", "A", monitor(3), Numbers(), "Measure the current of the cooler."),
            ("busy", "Tuning in progress", "", lambda: not self._settled(), Bool(), "Get whether the laser tunes."),
            ("laser_alarm", "Laser alarm", "", self._ask_alarm, Ints(), "Get the alarm of this laser; 0 is none."),
            (
                "alarm",
                "Chassis alarm",
                "",
                lambda: self._answer("ALAR?", parse_integer),
                Ints(),
                "Get the alarm code of the chassis; 0 is none.",
            ),
            ("interlock_open", "Interlock open", "", self._ask_interlock, Bool(), "Get whether it blocks the lasers."),
            (
                "access_level",
                "Access level",
                "",
                self._ask_access_level,
                Ints(),
                "Get what this session may do; see log_in().",
            ),
        )
        for name, label, unit, ask, validator, text in readings:
            self.add_parameter(
                name, label=label, unit=unit, vals=validator, get_cmd=ask, snapshot_value=False, docstring=text
            )

    def set_frequency(self, frequency_hz: float) -> None:
        """Start tuning to a frequency in Hz; :meth:`wait_settled` waits for the end and verifies it.

        Raises
        ------
        LimitError
            If the laser cannot have this frequency; nothing was changed.
        DeviceError
            If the laser refuses.
        """
        self._check_frequency(frequency_hz)
        with self._live_link().lock:
            self._driven = True
            self._set("FREQ", f"{frequency_hz / HZ_PER_THZ:.6f}")
            self._expect("FREQ?", parse_number, frequency_hz / HZ_PER_THZ, _FREQUENCY_TOLERANCE_HZ / HZ_PER_THZ, "THz")
            self._tuned_to(frequency_hz)

    def set_power(self, power_w: float) -> None:
        """Set the power setpoint in W.

        Raises
        ------
        LimitError
            If the laser cannot have this power or it exceeds ``max_power``; nothing was changed.
        DeviceError
            If the laser refuses or did not take it.
        """
        lowest, highest = self._limits.lowest_w, self._limits.highest_w
        if power_w <= self.max_power and not lowest * (1.0 - _SLACK) <= power_w <= highest * (1.0 + _SLACK):
            raise LimitError(
                f"{self.name}: power cannot be {power_w:g} W; this laser has {lowest:g} W to {highest:g} W. Nothing "
                f"was changed; for darkness use set_light(False)"
            )
        super().set_power(power_w)

    def wait_settled(self, deadline_s: float) -> None:
        """Wait on the clock until the laser has settled, and verify what was set.

        Raises
        ------
        DeviceError
            If it has not settled after ``deadline_s`` s, settled at something else than was set, or has an alarm.
        """
        super().wait_settled(deadline_s)
        alarm = self._ask_alarm()
        if alarm:
            raise self._live_link().device_error(f"the laser has alarm {alarm}; look it up in its manual")

    def _set_offset(self, offset_hz: float) -> None:
        reach = self._limits.offset_hz
        if not abs(offset_hz) <= reach * (1.0 + _SLACK):
            raise LimitError(
                f"{self.name}: frequency_offset cannot be {offset_hz:g} Hz; the limits are -{reach:g} Hz and "
                f"{reach:g} Hz. Nothing was changed"
            )
        with self._live_link().lock:
            self._driven = True
            self._set("OFF", f"{offset_hz / HZ_PER_GHZ:.3f}")
            self._expect("OFF?", parse_number, offset_hz / HZ_PER_GHZ, _OFFSET_TOLERANCE_HZ / HZ_PER_GHZ, "GHz")

    def _set_dither(self, on: bool) -> None:
        with self._live_link().lock:
            self._set("DIT", str(int(on)))
            if self._ask("DIT?", parse_dither) != on:
                raise self._not_applied("dither", not on, on, "")

    def _check_wavelength(self, wavelength_m: float) -> None:
        super()._check_wavelength(wavelength_m)
        self._check_frequency(_LIGHT_SPEED_M_S / wavelength_m)

    def _check_frequency(self, frequency_hz: float) -> None:
        lowest, highest = self._limits.lowest_hz, self._limits.highest_hz
        if not lowest * (1.0 - _SLACK) <= frequency_hz <= highest * (1.0 + _SLACK):
            raise LimitError(
                f"{self.name}: frequency cannot be {frequency_hz:g} Hz; the limits are {lowest:g} Hz and "
                f"{highest:g} Hz ({_LIGHT_SPEED_M_S / highest:g} m to {_LIGHT_SPEED_M_S / lowest:g} m). Nothing was "
                f"changed"
            )

    def _tuned_to(self, frequency_hz: float) -> None:
        wavelength_m = _LIGHT_SPEED_M_S / frequency_hz
        self._target_wavelength = wavelength_m
        self.frequency.cache.set(frequency_hz)
        self.wavelength.cache.set(wavelength_m)

    def _send_wavelength(self, wavelength_m: float) -> None:
        self._set("WAV", f"{m_to_nm(wavelength_m):.4f}")
        self._expect("WAV?", parse_number, m_to_nm(wavelength_m), m_to_nm(self.wavelength_tolerance), "nm")
        self._tuned_to(_LIGHT_SPEED_M_S / wavelength_m)

    def _send_power(self, power_w: float) -> None:
        self._set("POW", f"{watt_to_dbm(power_w):.2f}")
        self._expect("POW?", parse_level, watt_to_dbm(power_w), self.power_tolerance_db, "dBm")

    def _ask_wavelength(self) -> float:
        return nm_to_m(self._ask("WAV?", parse_number))

    def _ask_power(self) -> float:
        return dbm_to_watt(self._ask("POW?", parse_level))

    def _settled(self) -> bool:
        return not self._ask("BUSY?", parse_flag)

    def _ask_alarm(self) -> int:
        return self._ask("LALAR?", parse_integer)

    def _ask_interlock(self) -> bool:
        return self._answer("INTL?", parse_flag)

    def _emit(self, on: bool) -> None:
        self._set("STAT", str(int(on)))
        if self._ask("STAT?", parse_flag) != on:
            if on and self._ask_interlock():
                raise self._live_link().device_error("the laser stays off because the interlock is open; close it")
            raise self._not_applied("output (STAT)", int(not on), int(on), "")
        self.output.cache.set(on)

    def _snapshot_complete(self) -> bool:
        return self.IDN.cache.valid and self.dither.cache.valid

    def _refresh(self) -> None:
        self.IDN.get()
        now = self._ask("CONF?", parse_configuration)
        self.frequency.cache.set(now.frequency_hz)
        self.wavelength.cache.set(_LIGHT_SPEED_M_S / now.frequency_hz)
        self.frequency_offset.cache.set(now.offset_hz)
        self.power.cache.set(now.power_w)
        self.output.cache.set(now.on)
        self.dither.cache.set(now.dither)
