"""Light, power and command sets of Santec TSL lasers."""

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar  # Any: what QCoDeS validators take

from qcodes.instrument import InstrumentBaseKWArgs
from qcodes.parameters import Parameter
from qcodes.validators import Bool, Enum, Numbers, Strings, Validator
from typing_extensions import Unpack

from drivers._laser_sweep import SweepingLaser
from drivers._parsing import HIGHEST_LEVEL_DBM, parse_flag, parse_level, parse_number, parse_reading
from drivers._santec_wire import (
    ALERTS,
    FLAG,
    MODELS,
    Codec,
    SantecModel,
    choices,
    decimals,
    parse_alert,
    parse_frequency,
    parse_wavelength,
)
from optinc_hw.errors import ConfigurationError, LimitError
from optinc_hw.units import WATT_PER_MILLIWATT, dbm_to_watt, hz_to_m, m_to_hz, m_to_nm, watt_to_dbm

T = TypeVar("T")

_HIGHEST_POWER_DBM = 13.0  # of the diode, in front of the attenuator
_COMMAND_SETS = ("legacy", "scpi")
_POWER_UNITS = ("dBm", "mW")


class SantecLight(SweepingLaser):
    """What a Santec TSL does without sweeping; see :class:`drivers.SantecTSL570` for the arguments."""

    _error_query = ":SYST:ERR?"

    def __init__(
        self,
        name: str,
        address: str,
        *,
        model: str | None,
        timeout: float,
        max_power: float,
        visalib: str,
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if model is not None and model not in MODELS:
            raise ConfigurationError(f"{name}: there is no Santec laser {model!r}; the models are {', '.join(MODELS)}")
        super().__init__(name, max_power, **kwargs)
        self.address = address
        self._expected = re.compile("|".join(MODELS if model is None else (model,)))
        self._shines = False
        self._attach(self._open_link(address, visalib, b"\r", timeout))
        self._add_light_parameters()
        self._add_santec_light_parameters()
        self._add_power_parameters()
        self._add_system_parameters()

    @property
    def model(self) -> str:
        """Model of the laser that answers."""
        return self._identity.model

    @property
    def _abilities(self) -> SantecModel:
        return MODELS[self.model]

    def _add_santec_light_parameters(self) -> None:
        self.frequency = self.add_parameter(
            "frequency",
            label="Optical frequency",
            unit="Hz",
            vals=Numbers(*map(m_to_hz, reversed(self.plausible_wavelengths))),
            get_cmd=lambda: self._live_link().query(":FREQ?", parse_frequency),
            set_cmd=self._set_frequency,
            snapshot_value=False,
            docstring="Control the optical frequency in steps of 10 MHz; setting starts tuning, as for the wavelength.",
        )
        self.fine_tuning = self._add_setting(
            "fine_tuning", "Fine tuning", "", Numbers(-100.0, 100.0), ":WAV:FIN", decimals(2),
            "Control the fine tuning, a number from -100 to 100 without unit; stop_fine_tuning() ends it.",
        )  # fmt: skip
        self.coherence_control = self._add_setting(
            "coherence_control", "Coherence control", "", Bool(), ":COHC", FLAG,
            "Control whether the line is widened to shorten the coherence length.",
        )  # fmt: skip
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

    def _add_power_parameters(self) -> None:
        self.power_actual = self.add_parameter(
            "power_actual",
            label="Monitored power",
            unit="W",
            vals=Numbers(),
            get_cmd=self._ask_actual_power,
            snapshot_value=False,
            docstring="Measure the power at the laser's own monitor; NaN if that has no valid reading.",
        )
        self.auto_power = self.add_parameter(
            "auto_power",
            label="Automatic power control",
            unit="",
            vals=Bool(),
            get_cmd=self._ask_auto_power,
            set_cmd=self._set_auto_power,
            docstring="Control whether the attenuator follows the power setpoint; if not, the attenuation counts.",
        )
        self.attenuation = self.add_parameter(
            "attenuation",
            label="Attenuation",
            unit="dB",
            vals=Numbers(0.0, 30.0),
            get_cmd=self._ask_attenuation,
            set_cmd=self._set_attenuation,
            snapshot_value=False,
            docstring="Control the attenuator in steps of 0.01 dB; it decides the power while auto_power is off.",
        )
        self.power_unit = self._add_setting(
            "power_unit", "Power unit of the laser", "", Enum(*_POWER_UNITS), ":POW:UNIT", choices(_POWER_UNITS),
            "Control the unit of powers on the display and the wire; the parameters here are in W whatever it is.",
        )  # fmt: skip

    def _add_system_parameters(self) -> None:
        if self._abilities.two_command_sets:
            self.command_set = self._add_setting(
                "command_set", "Command set", "", Enum(*_COMMAND_SETS), ":SYST:COMM:COD", choices(_COMMAND_SETS),
                "Control the command set, which decides the units on the wire; the parameters here work with either.",
            )  # fmt: skip
        self._add_reading(
            "interlocked", "External interlock", Bool(), ":SYST:LOCK?", parse_flag,
            "Get whether the external interlock keeps the diode off.",
        )  # fmt: skip
        self.alert = self.add_parameter(
            "alert",
            label="System alert",
            unit="",
            vals=Strings(),
            get_cmd=self._ask_alert,
            snapshot_value=False,
            docstring="Get the present alert, its number put into words, or what the laser says if there is none.",
        )

    def stop_fine_tuning(self) -> None:
        """End fine tuning.

        Raises
        ------
        DeviceError
            If the laser refuses.
        """
        self._write_checked(":WAV:FIN:DIS")
        self.fine_tuning.cache.invalidate()

    def wait_settled(self, deadline_s: float) -> None:
        """Wait on the clock until the laser has settled, and verify wavelength, power and light that were set.

        Raises
        ------
        DeviceError
            If it has not settled after ``deadline_s`` s, or settled at something else than was set.
        """
        super().wait_settled(deadline_s)
        if self._shines:
            with self._live_link().lock:
                self._verify_switch(":POW:STAT", "laser diode", True)
                self._verify_switch(":POW:SHUT", "shutter", False)

    def _set_frequency(self, frequency_hz: float) -> None:
        wavelength_m = hz_to_m(frequency_hz)
        self._check_wavelength(wavelength_m)
        with self._live_link().lock:
            value = f"{frequency_hz:.7E}" if self._uses_metres() else f"{frequency_hz * 1e-12:.5f}"
            self._driven = True
            self._write_checked(f":FREQ {value}")
            self._target_wavelength = wavelength_m
            self.wavelength.cache.set(wavelength_m)

    def _send_wavelength(self, wavelength_m: float) -> None:
        self._write_checked(f":WAV {self._length_text(wavelength_m)}")

    def _send_power(self, power_w: float) -> None:
        level = f"{power_w / WATT_PER_MILLIWATT:.4f}" if self._uses_milliwatts() else f"{watt_to_dbm(power_w):.2f}"
        self._write_checked(f":POW {level}")

    def _settled(self) -> bool:
        # Unlike on other instruments *OPC? does not wait here, but answers 0 while the laser tunes.
        return self._live_link().query("*OPC?", parse_flag)

    def _emit(self, on: bool) -> None:
        if on:
            self._switch(":POW:STAT", "laser diode", True)
            self.output.cache.set(True)
        self._shines = on
        self._switch(":POW:SHUT", "shutter", not on)
        self.shutter_open.cache.set(on)

    def _set_output(self, on: bool) -> None:
        with self._live_link().lock:
            if on:
                self._check_emission()
            self._driven, self._shines = True, False
            self._switch(":POW:STAT", "laser diode", on)
            self.output.cache.set(on)

    def _set_shutter(self, is_open: bool) -> None:
        with self._live_link().lock:
            if is_open:
                self._check_emission()
            self._driven, self._shines = True, False
            self._switch(":POW:SHUT", "shutter", not is_open)
            self.shutter_open.cache.set(is_open)

    def _switch(self, command: str, what: str, state: bool) -> None:
        self._write_checked(f"{command} {int(state)}")
        self._verify_switch(command, what, state)

    def _verify_switch(self, command: str, what: str, state: bool) -> None:
        actual = self._live_link().query(f"{command}?", parse_flag)
        if actual != state:
            raise self._not_applied(f"{what} ({command})", int(actual), int(state), "")

    def _set_auto_power(self, on: bool) -> None:
        with self._live_link().lock:
            would_emit = self._ask_power() if on else dbm_to_watt(_HIGHEST_POWER_DBM - self._ask_attenuation())
            self._check_power(would_emit, f"automatic power control {'on' if on else 'off'}")
            self._driven = True
            self._switch(":POW:ATT:AUT", "automatic power control", on)
            if not on:
                self._target_power = None

    def _set_attenuation(self, attenuation_db: float) -> None:
        self._check_power(dbm_to_watt(_HIGHEST_POWER_DBM - attenuation_db), f"an attenuation of {attenuation_db:g} dB")
        with self._live_link().lock:
            self._driven = True
            self._write_setting(":POW:ATT", f"{attenuation_db:.2f}", parse_number, "dB")
            self._target_power = None  # the attenuator may have taken over from the setpoint
            self.auto_power.cache.invalidate()

    def _check_power(self, power_w: float, what: str) -> None:
        if self._exceeds_limit(power_w):
            raise LimitError(
                f"{self.name}: {what} could emit {power_w:g} W, but max_power is {self.max_power:g} W. Nothing was "
                f"changed; set a lower power or a higher attenuation first"
            )

    def _verify_power(self) -> None:
        super()._verify_power()
        if self._target_power is not None and not self._ask_auto_power():
            raise self._not_applied("automatic power control", "off", "a power setpoint", "that needs it")

    def _ask_emitted_power(self) -> float:
        if self._ask_auto_power():
            return self._ask_power()
        return dbm_to_watt(_HIGHEST_POWER_DBM - self._ask_attenuation())

    def _ask_auto_power(self) -> bool:
        return self._live_link().query(":POW:ATT:AUT?", parse_flag)

    def _ask_attenuation(self) -> float:
        return self._live_link().query(":POW:ATT?", parse_number)

    def _ask_wavelength(self) -> float:
        return self._live_link().query(":WAV?", parse_wavelength)[0]

    def _uses_metres(self) -> bool:
        """Tell the SCPI from the Legacy command set by the unit of the wavelength that the laser reports now."""
        return self._live_link().query(":WAV?", parse_wavelength)[1]

    def _length_text(self, length_m: float) -> str:
        """Write a wavelength or a difference of wavelengths, in steps of 0.1 pm, as the command set in force wants."""
        return self._length_in(self._uses_metres(), length_m)

    @staticmethod
    def _length_in(metres: bool, length_m: float) -> str:
        return f"{length_m:.7E}" if metres else f"{m_to_nm(length_m):.4f}"

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

    def _ask_alert(self) -> str:
        number, text = self._live_link().query(":SYST:ALER?", parse_alert)
        return text if number is None else f"{number} {ALERTS.get(number, text)}"

    def _add_setting(
        self,
        name: str,
        label: str,
        unit: str,
        vals: Validator[Any],
        command: str,
        codec: Codec[T],
        docstring: str,
    ) -> Parameter:
        """Add a parameter that is set with ``command``, and asked and read back with ``command?``."""

        def change(value: T) -> None:
            with self._live_link().lock:
                self._write_setting(command, codec.write(value), codec.parse, unit)

        return self.add_parameter(
            name,
            label=label,
            unit=unit,
            vals=vals,
            get_cmd=lambda: self._live_link().query(f"{command}?", codec.parse),
            set_cmd=change,
            docstring=docstring,
        )

    def _write_setting(self, command: str, text: str, parse: Callable[[str], object], unit: str) -> None:
        """Send a setting, and check with the error queue and by reading it back that the laser took it."""
        self._write_checked(f"{command} {text}")
        actual, wanted = self._live_link().query(f"{command}?", parse), parse(text)
        if isinstance(actual, float) and isinstance(wanted, float):
            if not math.isclose(actual, wanted, rel_tol=1e-6):
                raise self._not_applied(command, f"{actual:.10g}", f"{wanted:.10g}", unit)
        elif actual != wanted:
            raise self._not_applied(command, actual, wanted, unit)

    def _add_reading(
        self,
        name: str,
        label: str,
        vals: Validator[Any],
        query: str,
        parse: Callable[[str], object],
        docstring: str,
        unit: str = "",
    ) -> None:
        """Add a parameter that can only be asked, and is not part of snapshots."""
        self.add_parameter(
            name,
            label=label,
            unit=unit,
            vals=vals,
            get_cmd=lambda: self._live_link().query(query, parse),
            snapshot_value=False,
            docstring=docstring,
        )

    def _identify(self) -> None:
        self._check_identity(self.address, ("SANTEC",), self._expected)

    def _snapshot_parameters(self) -> tuple[Parameter, ...]:
        return (self.IDN, self.wavelength, self.power, self.auto_power, self.output, self.shutter_open)

    def _snapshot_complete(self) -> bool:
        return all(parameter.cache.valid for parameter in self._snapshot_parameters())

    def _refresh(self) -> None:
        for parameter in self._snapshot_parameters():
            parameter.get()
