"""Keysight tunable lasers without their sweeps: light, lock, and the settings of sweeps and triggers."""

import math
import re
from collections.abc import Callable
from typing import Any

from qcodes.instrument import InstrumentBaseKWArgs
from qcodes.validators import Bool, Enum, Ints, Numbers, Validator
from typing_extensions import Unpack

from drivers._laser_sweep import SweepingLaser
from drivers._parsing import parse_flag, parse_integer, parse_level, parse_number
from optinc_hw.errors import ConfigurationError, IdentityError, LimitError, LinkTimeoutError
from optinc_hw.units import WATT_PER_MILLIWATT, dbm_to_watt, m_to_nm

MODELS = ("8164A", "8164B", "N7776C", "N7778C", "N7779C")
SMALLEST_STEP_M = 0.1e-12

_VENDORS = ("Keysight", "Agilent")
_LASER_MODULE = re.compile(r"81(?!57|59|61|62|63)\d{3}[A-Z]")
"""Attenuators, switches, return-loss and power-sensor modules begin with 8157, 8159 and 8161 to 8163."""

_SLOTS = 5
_IMPLAUSIBLE_W = 1.0
"""Far more than these lasers can give; a number beyond is a level in dBm or nonsense."""
_SLACK_M = 1e-15
_OPC_PATIENCE = 9.0
"""How long to wait for the end of tuning, in timeouts and beyond the first of them."""
_READ_BACK = 1e-5
"""Relative error of a setting that is read back; replies are 32-bit floats."""
_PIN = re.compile(r"\d{1,8}", re.ASCII)
_SWEEP_STATES = ("stopped", "running", "paused")
_MODE_WORDS = {"stepped": "STEP", "manual": "MAN", "continuous": "CONT"}
_PATH_WORDS = {
    "high_power": "HIGH",
    "low_sse": "LOWS",
    "both_high_regulated": "BHR",
    "both_low_regulated": "BLR",
}
_INPUT_WORDS = {"ignore": "IGN", "next_step": "NEXT", "sweep_start": "SWS"}
_OUTPUT_WORDS = {"none": "DIS", "step": "STF", "sweep_end": "SWF", "sweep_start": "SWST"}
_ROUTE_WORDS = {"disabled": "DIS", "default": "DEF", "pass_through": "PASS", "loop_back": "LOOP"}


class KeysightLaserSettings(SweepingLaser):
    """Everything of a Keysight laser but running sweeps; see :class:`drivers.keysight_laser.KeysightLaser`."""

    def __init__(
        self,
        name: str,
        address: str,
        *,
        model: str | None,
        slot: int,
        timeout: float,
        max_power: float,
        visalib: str,
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if model is not None and model not in MODELS:
            raise ConfigurationError(f"{name}: model {model!r} is unknown; give one of {', '.join(MODELS)}, or None")
        if not 0 <= slot < _SLOTS:
            raise ConfigurationError(f"{name}: slot {slot} does not exist; slots are 0 to {_SLOTS - 1}")
        super().__init__(name, max_power, **kwargs)
        self.address = address
        self.slot = slot
        self._expected = re.compile("|".join(MODELS) if model is None else model)
        self._source, self._trigger = f"sour{slot}", f"trig{slot}"
        self._attach(self._open_link(address, visalib, b"\n", timeout))
        self._add_light_parameters()
        self._add_state_parameters()
        self._add_sweep_parameters()
        self._add_trigger_parameters()

    @property
    def model(self) -> str:
        """Model of the laser that answers, or of the mainframe around it."""
        return self._identity.model

    def _add_state_parameters(self) -> None:
        self.output = self.add_parameter(
            "output",
            label="Laser output",
            unit="",
            vals=Bool(),
            get_cmd=lambda: self._live_link().query(f"{self._source}:pow:stat?", parse_flag),
            set_cmd=self.set_light,
            docstring="Control the laser output.",
        )
        self.locked = self.add_parameter(
            "locked",
            label="Laser lock",
            unit="",
            vals=Bool(),
            get_cmd=lambda: self._live_link().query("lock?", parse_flag),
            docstring="Get whether the laser is locked, which keeps it off; see unlock().",
        )
        if self._is_mainframe:
            self._add_setting(
                "output_path", "Optical output", "", Enum(*_PATH_WORDS), f"outp{self.slot}:path",
                _word_parser(_PATH_WORDS), lambda path: _PATH_WORDS[path].lower(),
                "Control which output of a laser with two of them is used and regulated.",
            )  # fmt: skip

    def _add_sweep_parameters(self) -> None:
        sweep = f"{self._source}:wav:swe"
        wavelength = Numbers(*self.plausible_wavelengths)
        self._add_setting(
            "sweep_start", "Start of the sweep", "m", wavelength, f"{sweep}:star", self._parse_wavelength, _nm,
            "Control the wavelength at which a sweep begins.",
        )  # fmt: skip
        self._add_setting(
            "sweep_stop", "End of the sweep", "m", wavelength, f"{sweep}:stop", self._parse_wavelength, _nm,
            "Control the wavelength at which a sweep ends; it must be longer than the start.",
        )  # fmt: skip
        self._add_setting(
            "sweep_step", "Step of the sweep", "m", Numbers(SMALLEST_STEP_M * 0.999, 1e-6), f"{sweep}:step",
            parse_number, _pm, "Control the step of stepped sweeps, and the distance of triggers in continuous ones.",
        )  # fmt: skip
        self._add_setting(
            "sweep_speed", "Speed of the sweep", "m/s", Numbers(1e-12, 1e-6), f"{sweep}:spe", parse_number,
            lambda speed: f"{m_to_nm(speed):.6f}nm/s", "Control the speed of continuous sweeps.",
        )  # fmt: skip
        self._add_setting(
            "sweep_dwell", "Time at each step", "s", Numbers(0.0, 1000.0), f"{sweep}:dwel", parse_number,
            lambda seconds: f"{seconds:.6f}s", "Control how long a stepped sweep stays at each step.",
        )  # fmt: skip
        self._add_setting(
            "sweep_cycles", "Number of sweeps", "", Ints(0, 999), f"{sweep}:cycl", parse_integer, str,
            "Control how many sweeps follow one another; 0 for no end.",
        )  # fmt: skip
        self._add_setting(
            "sweep_mode", "Sweep mode", "", Enum(*_MODE_WORDS), f"{sweep}:mode", _word_parser(_MODE_WORDS),
            _MODE_WORDS.__getitem__, "Control whether sweeps go in steps, by hand or continuously.",
        )  # fmt: skip
        self._add_setting(
            "sweep_two_way", "Sweep there and back", "", Bool(), f"{sweep}:rep",
            _word_parser({False: "ONEW", True: "TWOW"}), lambda two_way: "TWOW" if two_way else "ONEW",
            "Control whether a sweep comes back.",
        )  # fmt: skip
        self._add_setting(
            "lambda_logging", "Wavelength logging", "", Bool(), f"{sweep}:llog", parse_flag,
            lambda on: str(int(on)), "Control whether the next sweep logs its wavelengths.",
        )  # fmt: skip
        self._add_reading(
            "sweep_state", "State of the sweep", Enum(*_SWEEP_STATES), f"{sweep}?", parse_sweep_state,
            "Get whether a sweep is stopped, running or paused.",
        )  # fmt: skip
        self._add_reading(
            "expected_triggers", "Expected triggers", Ints(min_value=0), f"{sweep}:exp?", parse_integer,
            "Get how many triggers the next sweep will give.",
        )  # fmt: skip
        self._add_reading(
            "log_points", "Points in the log", Ints(min_value=0), f"{self._source}:read:poin? llog", parse_integer,
            "Get how many wavelengths the log of the latest sweep has.",
        )  # fmt: skip

    def _add_trigger_parameters(self) -> None:
        self._add_setting(
            "trigger_input", "Trigger input", "", Enum(*_INPUT_WORDS), f"{self._trigger}:inp",
            _word_parser(_INPUT_WORDS), _INPUT_WORDS.__getitem__, "Control what a trigger that comes in does.",
        )  # fmt: skip
        self._add_setting(
            "trigger_output", "Trigger output", "", Enum(*_OUTPUT_WORDS), f"{self._trigger}:outp",
            _word_parser(_OUTPUT_WORDS), _OUTPUT_WORDS.__getitem__, "Control when a trigger goes out during a sweep.",
        )  # fmt: skip
        self._add_setting(
            "trigger_route", "Trigger connectors", "", Enum(*_ROUTE_WORDS), "trig:conf",
            _word_parser(_ROUTE_WORDS), _ROUTE_WORDS.__getitem__,
            "Control how the trigger connectors and the slots are connected; loop_back serves meters in the mainframe.",
        )  # fmt: skip

    def unlock(self, pin: str) -> None:
        """Unlock the laser, which lets it be switched on; ``pin`` is 1234 when it leaves the factory.

        Raises
        ------
        LimitError
            If the PIN is not a number; nothing was changed.
        DeviceError
            If the laser refuses or stays locked.
        """
        self._set_lock(False, pin)

    def lock(self, pin: str) -> None:
        """Lock the laser, which switches it off; errors as for :meth:`unlock`."""
        self._set_lock(True, pin)

    def wait_settled(self, deadline_s: float) -> None:
        """Wait until the laser has settled, and verify the wavelength and power that were set.

        The laser itself waits: it answers ``*OPC?`` only when it is done. As a link that is dead looks the same, the
        driver waits for the answer no longer than ten times ``timeout``.

        Raises
        ------
        DeviceError
            If it has not settled after ``deadline_s`` s, did not answer, or settled at something else than was set.
        """
        link = self._live_link()
        end = self.clock.now() + deadline_s
        late = f"the laser has not settled within {deadline_s:g} s"
        patience = min(deadline_s, _OPC_PATIENCE * link.timeout)
        try:
            done = self._settled(patience)
        except LinkTimeoutError as error:
            raise link.device_error(
                f"the laser has not settled within {patience:g} s: it did not answer *OPC?; if it needs longer, raise "
                f"timeout"
            ) from error
        if not done or self.clock.now() > end:
            raise link.device_error(late)
        with link.lock:
            self._verify_wavelength()
            self._verify_power()

    def _set_lock(self, locked: bool, pin: str) -> None:
        if _PIN.fullmatch(pin) is None:
            raise LimitError(f"{self.name}: the PIN must be a number of up to 8 digits. Nothing was changed")
        with self._live_link().lock:
            self._write_checked(f"lock {int(locked)},{pin}")
            if self.locked() != locked:
                raise self._not_applied("lock", int(not locked), int(locked), "")

    def _check_wavelength(self, wavelength_m: float) -> None:
        super()._check_wavelength(wavelength_m)
        shortest, longest = self._range
        if not shortest - _SLACK_M <= wavelength_m <= longest + _SLACK_M:
            raise LimitError(
                f"{self.name}: wavelength cannot be {wavelength_m:g} m; the limits of this laser are {shortest:g} m "
                f"and {longest:g} m. Nothing was changed"
            )

    def _send_wavelength(self, wavelength_m: float) -> None:
        self._write_checked(f"{self._source}:wav {_nm(wavelength_m)}")

    def _send_power(self, power_w: float) -> None:
        self._write_checked(f"{self._source}:pow {power_w / WATT_PER_MILLIWATT:.6f}mW")

    def _ask_wavelength(self) -> float:
        return self._live_link().query(f"{self._source}:wav?", self._parse_wavelength)

    def _ask_power(self) -> float:
        link = self._live_link()
        with link.lock:
            in_watts = link.query(f"{self._source}:pow:unit?", parse_flag)
            return link.query(f"{self._source}:pow?", _parse_watts if in_watts else _parse_dbm)

    def _settled(self, patience_s: float = 0.0) -> bool:
        return self._live_link().query("*OPC?", parse_flag, extra_time=patience_s)

    def _emit(self, on: bool) -> None:
        link = self._live_link()
        with link.lock:
            if on and self.locked():
                raise link.device_error("the laser is locked and stays off; call unlock() with its PIN first")
            self._write_checked(f"{self._source}:pow:stat {int(on)}")
            actual = link.query(f"{self._source}:pow:stat?", parse_flag)
            if actual != on:
                raise self._not_applied("output (pow:stat)", int(actual), int(on), "")
        self.output.cache.set(on)

    def _add_setting(
        self,
        name: str,
        label: str,
        unit: str,
        vals: Validator[Any],  # Any: each setting has its own type
        command: str,
        parse: Callable[[str], Any],
        write: Callable[[Any], str],
        docstring: str,
    ) -> None:
        """Add a parameter that is sent by itself and read back."""

        def set_value(value: Any) -> None:  # Any: as above
            with self._live_link().lock:
                self._write_checked(f"{command} {write(value)}")
                actual = self._live_link().query(f"{command}?", parse)
                same = actual == value or (
                    isinstance(actual, float) and math.isclose(actual, value, rel_tol=_READ_BACK)
                )
                if not same:
                    raise self._not_applied(name, actual, value, unit)

        self.add_parameter(
            name,
            label=label,
            unit=unit,
            vals=vals,
            get_cmd=lambda: self._live_link().query(f"{command}?", parse),
            set_cmd=set_value,
            snapshot_value=False,
            docstring=docstring,
        )

    def _add_reading(
        self,
        name: str,
        label: str,
        vals: Validator[Any],  # Any: each reading has its own type
        query: str,
        parse: Callable[[str], Any],
        docstring: str,
    ) -> None:
        self.add_parameter(
            name,
            label=label,
            unit="",
            vals=vals,
            get_cmd=lambda: self._live_link().query(query, parse),
            snapshot_value=False,
            docstring=docstring,
        )

    def _parse_wavelength(self, text: str) -> float:
        value = parse_number(text)
        shortest, longest = self.plausible_wavelengths
        if not shortest <= value <= longest:
            raise ValueError(f"{text!r} is no wavelength in m")
        return value

    def _identify(self) -> None:
        identity = self._check_identity(self.address, _VENDORS, self._expected)
        link = self._live_link()
        self._is_mainframe = identity.model.startswith("8164")
        if self._is_mainframe:
            module = link.query(f"slot{self.slot}:idn?", str)
            fields = [field.strip() for field in module.split(",")]
            if len(fields) < 2 or _LASER_MODULE.fullmatch(fields[1]) is None:
                raise IdentityError(
                    f"{self.name} at {self.address}: slot {self.slot} of the {identity.model} holds {module!r}, which "
                    f"is no laser module; correct the slot"
                )
        elif self.slot != 0:
            raise IdentityError(f"{self.name} at {self.address}: an {identity.model} has slot 0 only; correct the slot")
        self._range = (
            link.query(f"{self._source}:wav? min", self._parse_wavelength),
            link.query(f"{self._source}:wav? max", self._parse_wavelength),
        )

    def _snapshot_complete(self) -> bool:
        return all(parameter.cache.valid for parameter in self._in_snapshot())

    def _refresh(self) -> None:
        for parameter in self._in_snapshot():
            parameter.get()

    def _in_snapshot(self) -> tuple[Any, ...]:  # Any: parameters of different types
        return self.IDN, self.wavelength, self.power, self.output, self.locked


def parse_sweep_state(text: str) -> str:
    """Parse ``+0``, ``+1`` or ``+2`` to a word."""
    value = parse_integer(text)
    if not 0 <= value < len(_SWEEP_STATES):
        raise ValueError(f"{text!r} is no state of a sweep")
    return _SWEEP_STATES[value]


def _word_parser(words: dict[Any, str]) -> Callable[[str], Any]:  # Any: booleans or text
    meanings = {word: meaning for meaning, word in words.items()}

    def parse(text: str) -> Any:  # Any: as above
        try:
            return meanings[text.upper()]
        except KeyError:
            raise ValueError(f"{text!r} is none of {', '.join(meanings)}") from None

    return parse


def _nm(wavelength_m: float) -> str:
    return f"{m_to_nm(wavelength_m):.4f}nm"


def _pm(step_m: float) -> str:
    return f"{m_to_nm(step_m) * 1e3:.1f}pm"


def _parse_watts(text: str) -> float:
    value = parse_number(text)
    if not 0.0 <= value <= _IMPLAUSIBLE_W:
        raise ValueError(f"{text!r} is no power of this laser in W")
    return value


def _parse_dbm(text: str) -> float:
    return dbm_to_watt(parse_level(text))
