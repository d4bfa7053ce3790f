"""What can be set on Keysight's multiport power meters, verified, and who they are."""

import math
import re
from abc import abstractmethod
from typing import Any

from qcodes.instrument import ChannelTuple, InstrumentBaseKWArgs, InstrumentChannel
from qcodes.parameters import Parameter
from qcodes.validators import Bool, Enum, Numbers
from typing_extensions import Unpack

from drivers._keysight_parsing import parse_slots
from drivers._parsing import parse_flag, parse_number
from drivers._scpi import ScpiInstrument
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LimitError

PORTS_OF_MODELS = {"N7744A": 4, "N7745A": 8, "N7744C": 4, "N7745C": 8}

_ANY_MODEL = re.compile("|".join(PORTS_OF_MODELS))
_RANGES_DBM = (-30.0, -20.0, -10.0, 0.0, 10.0)
_SETTING_TOLERANCE = 1e-6


class N7745APort(InstrumentChannel["N7745ASettings"]):
    """One port.

    Parameters
    ----------
    parent
        The meter that the port belongs to.
    name
        Name within the meter.
    index
        0-based index; the instrument itself counts from 1.
    """

    def __init__(self, parent: "N7745ASettings", name: str, index: int) -> None:
        super().__init__(parent, name)
        self.index = index
        self.power = self.add_parameter(
            "power",
            label=f"Port {index} power",
            unit="W",
            vals=Numbers(),
            get_cmd=lambda: parent.read_power(index),
            snapshot_value=False,
            docstring="Measure the optical power; NaN if the reading is not valid.",
        )
        self.wavelength = self.add_parameter(
            "wavelength",
            label=f"Port {index} wavelength",
            unit="m",
            vals=Numbers(min_value=100e-9, max_value=10e-6),
            get_cmd=lambda: parent.ask_setting(index, "wav"),
            set_cmd=lambda value: parent.apply_setting(index, "wav", value),
            docstring="Control the wavelength that the power is calculated for.",
        )
        self.averaging_time = self.add_parameter(
            "averaging_time",
            label=f"Port {index} averaging time",
            unit="s",
            vals=Numbers(min_value=1e-6, max_value=1e3),
            get_cmd=lambda: parent.ask_setting(index, "atim"),
            set_cmd=lambda value: parent.apply_setting(index, "atim", value),
            docstring="Control the averaging time.",
        )
        self.range_dbm = self.add_parameter(
            "range_dbm",
            label=f"Port {index} range",
            unit="dBm",
            vals=Enum(*_RANGES_DBM),
            get_cmd=lambda: parent.ask_setting(index, "rang"),
            set_cmd=lambda value: parent.apply_setting(index, "rang", value),
            docstring="Control the highest level that can be read; setting it ends the automatic range.",
        )
        self.auto_range = self.add_parameter(
            "auto_range",
            label=f"Port {index} automatic range",
            vals=Bool(),
            get_cmd=lambda: parent.ask_auto_range(index),
            set_cmd=lambda on: parent.apply_auto_range(index, on),
            docstring="Control whether the port chooses its range; while it logs, it keeps the one in use.",
        )

    def settings(self) -> "tuple[Parameter[Any, Any], ...]":  # Any: numbers and switches, of any instrument
        """Return the parameters that a snapshot shows."""
        return self.wavelength, self.averaging_time, self.range_dbm, self.auto_range


class N7745ASettings(ScpiInstrument):
    """Ports and settings of a power meter; see :class:`drivers.keysight.KeysightN7745A`."""

    def __init__(
        self,
        name: str,
        address: str,
        *,
        ports: int,
        model: str | None,
        timeout: float,
        visalib: str,
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        _check_ports(name, ports, model)
        super().__init__(name, **kwargs)
        self.address = address
        self._ports = ports
        self._model = _ANY_MODEL if model is None else re.compile(model)
        self._in_watts = False
        self._log_in_hand = False
        self._log_expected_s = 0.0
        self._attach(self._open_link(address, visalib, b"\n", timeout))
        ports_list = [N7745APort(self, f"ch{index}", index) for index in range(ports)]
        self.channels = ChannelTuple(self, "channels", N7745APort, ports_list)
        self.add_submodule("channels", self.channels)
        self.averaging_time = self.add_parameter(
            "averaging_time",
            label="Averaging time",
            unit="s",
            vals=Numbers(min_value=1e-6, max_value=1e3),
            get_cmd=lambda: max(port.averaging_time.get() for port in self.channels),
            set_cmd=self._set_averaging_time,
            docstring="Control the averaging time of all ports; getting tells the longest.",
        )

    @property
    def port_count(self) -> int:
        """Number of ports."""
        return self._ports

    @abstractmethod
    def read_power(self, index: int) -> float:
        """Read one port (0-based) in W; NaN if the reading is not valid."""

    def ask_setting(self, index: int, setting: str) -> float:
        """Ask for ``wav`` (in m), ``atim`` (in s) or ``rang`` (in dBm) of a port (0-based)."""
        return self._live_link().query(f"sens{self._slot(index)}:pow:{setting}?", parse_number)

    def apply_setting(self, index: int, setting: str, value: float) -> None:
        """Set ``wav`` (in m), ``atim`` (in s) or ``rang`` (in dBm) of a port (0-based) and verify it.

        Raises
        ------
        LimitError
            If a wavelength or time is not positive and finite; nothing was sent.
        DeviceError
            If a log is in hand, or the meter refuses the value or silently did not take it.
        """
        if setting != "rang":
            self._check_positive(setting, value)
        with self._live_link().lock:
            self._check_no_log()
            command = f"sens{self._slot(index)}:pow:{setting}"
            self._write_checked(f"{command} {value:.8E}")
            actual = self.ask_setting(index, setting)
            if abs(actual - value) > _SETTING_TOLERANCE * abs(value):
                raise self._not_taken(command, f"{actual:g}", f"{value:g}")
            port = self.channels[index]
            {"wav": port.wavelength, "atim": port.averaging_time, "rang": port.range_dbm}[setting].cache.set(value)
            if setting == "rang":
                port.auto_range.cache.set(False)

    def ask_auto_range(self, index: int) -> bool:
        """Ask whether a port (0-based) chooses its range."""
        return self._live_link().query(f"sens{self._slot(index)}:pow:rang:auto?", parse_flag)

    def apply_auto_range(self, index: int, on: bool) -> None:
        """Let a port (0-based) choose its range, or keep the one in use; raises DeviceError if it does not do so."""
        with self._live_link().lock:
            self._check_no_log()
            command = f"sens{self._slot(index)}:pow:rang:auto"
            self._write_checked(f"{command} {int(on)}")
            if self.ask_auto_range(index) != on:
                raise self._not_taken(command, str(int(not on)), str(int(on)))

    def make_safe(self) -> None:
        """Do nothing: a meter has no outputs."""

    def _set_averaging_time(self, seconds: float) -> None:
        with self._live_link().lock:
            for port in self.channels:
                port.averaging_time.set(seconds)

    def _longest_averaging(self) -> float:
        times = [port.averaging_time.cache.get() for port in self.channels]
        return float(max(times))

    def _check_units(self) -> None:
        link = self._live_link()
        self._in_watts = False
        for index in range(self._ports):
            if not link.query(f"sens{self._slot(index)}:pow:unit?", parse_flag):
                raise link.device_error(
                    f"port {index} measures in dBm; call initialise(), or switch the unit to W at the front panel"
                )
        self._in_watts = True

    def _check_no_log(self) -> None:
        """Refuse what would end a log, or be answered from it."""
        if self._log_in_hand:
            raise DeviceError(
                f"{self.name}: a log is armed, running or not read yet, and this would end it; call read_log() or "
                f"stop_log() first"
            )

    def _check_positive(self, setting: str, value: float) -> None:
        if not 0.0 < value < math.inf:
            raise LimitError(f"{self.name}: '{setting}' cannot be {value}; give a positive number in SI units")

    def _not_taken(self, command: str, actual: str, wanted: str) -> DeviceError:
        return self._live_link().device_error(
            f"'{command}' is {actual} although {wanted} was set; choose a value that the meter supports"
        )

    def _slot(self, index: int) -> int:
        if not 0 <= index < self._ports:
            raise LimitError(f"{self.name}: there is no port {index}; the meter has ports 0 to {self._ports - 1}")
        return index + 1

    def _is_driven(self) -> bool:
        return False

    def _identify(self) -> None:
        self._in_watts = False
        self._check_identity(self.address, ("Keysight", "Agilent"), self._model)
        slots = self._live_link().query_block("read:pow:all:conf?", parse_slots)
        if slots != [(index + 1, 1) for index in range(self._ports)]:
            raise IdentityError(
                f"{self.name} at {self.address}: the meter has ports (slot, channel) {slots}, but {self._ports} ports "
                f"are expected; correct the number of ports"
            )

    def _snapshot_complete(self) -> bool:
        shown = [setting for port in self.channels for setting in port.settings()]
        return self.IDN.cache.valid and all(setting.cache.valid for setting in shown)

    def _refresh(self) -> None:
        self.IDN.get()
        for port in self.channels:
            for setting in port.settings():
                setting.get()
        self.averaging_time.cache.set(self._longest_averaging())


def _check_ports(name: str, ports: int, model: str | None) -> None:
    if model is not None and model not in PORTS_OF_MODELS:
        known = ", ".join(PORTS_OF_MODELS)
        raise ConfigurationError(f"{name}: model {model!r} is unknown; give one of {known}, or None")
    if ports < 1:
        raise ConfigurationError(f"{name}: ports is {ports}; give the number of ports of the meter, 1 or more")
    if model is not None and ports != PORTS_OF_MODELS[model]:
        raise ConfigurationError(f"{name}: ports is {ports}, but an {model} has {PORTS_OF_MODELS[model]}")
