"""QDevil QDAC-II: 24 low-noise voltage channels with current sensors."""

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Literal

from qcodes.instrument import InstrumentBaseKWArgs
from typing_extensions import Unpack

from drivers._heater_bank import HeaterBankInstrument
from drivers._heater_limits import plausible
from drivers._heater_outputs import HeaterWire, Quantity
from drivers._link import Link
from drivers._parsing import parse_number, parse_reading
from drivers._scpi import ScpiInstrument
from drivers.protocols import SimulatedAs
from optinc_hw.errors import ConfigurationError, DeviceError

_log = logging.getLogger(__name__)

_MODEL = re.compile(r"QDAC-II")
_BAUDRATE = 921600
_CHANNELS = 24
_SPAN_V = {"low": 2.0, "high": 10.0}
_FULL_CURRENT_A = 10e-3
_CHANNELS_PER_MESSAGE = 8
_LIMITED = 0.98
"""Share of the current limit from which an output counts as limited; a margin for the errors of both."""
_TOLERANCE_V = 1e-3
"""Setpoints are as set within this many V, which is far above the converter's step."""
_QUICK_S = 1e-4
"""A step that the slew limit makes take less than this time is as good as a jump."""

_ERROR = r'[+-]?\d+,\s*"(?:[^"]|"")*"'
_ERRORS = re.compile(rf"{_ERROR}(?:,\s*{_ERROR})*", re.ASCII)
_ONE_ERROR = re.compile(r'([+-]?\d+),\s*"((?:[^"]|"")*)"', re.ASCII)

VoltageRange = Literal["low", "high"]
"""Voltage range of a channel: 2 V or 10 V."""


class Qdac2Wire(HeaterWire):
    """SCPI commands of a QDAC-II; its voltages are setpoints, its currents are measured.

    Parameters
    ----------
    link
        Open link.
    channels
        Number of channels in use, from the first on.
    voltage_range
        Range that all of them must have.
    write_checked
        Sends a command and raises DeviceError if it put something into the error queue.
    pace
        Returns the largest step in V and the time in s between steps.
    """

    full_current = _FULL_CURRENT_A
    has_switches = True
    start_tolerance = _TOLERANCE_V

    def __init__(
        self,
        link: Link,
        channels: int,
        voltage_range: VoltageRange,
        write_checked: Callable[[str], None],
        pace: Callable[[], tuple[float, float]],
    ) -> None:
        self.channel_count = channels
        self.full_voltage = _SPAN_V[voltage_range]
        self.min_voltage = -_SPAN_V["high"]
        self._link = link
        self._range = voltage_range
        self._write_checked = write_checked
        self._pace = pace
        self._slew: dict[int, float] = {}
        self._sensors: set[int] = set()
        self._volts = plausible(parse_number, _SPAN_V["high"], "V")
        self._amperes = plausible(parse_reading, _FULL_CURRENT_A, "A")

    def forget_settings(self) -> None:
        """Take no setting of the instrument for granted any more."""
        self._slew.clear()
        self._sensors.clear()

    def read(self, quantity: Quantity, channel: int) -> float:
        """Ask for the setpoint with ``sour<n>:volt?``, or measure with ``read<n>?``."""
        if quantity == "V":
            return self.read_some([channel])[0]
        return self._link.query(f"read{channel + 1}?", self._amperes)

    def read_some(self, channels: Sequence[int]) -> list[float]:
        """Ask for setpoints with compound questions."""
        found: list[float] = []
        for message in _messages(channels):
            command = ";:".join([f"sour{channel + 1}:volt?" for channel in message])
            found += self._link.query(command, partial(_fields, separator=";", count=len(message), parse=self._volts))
        return found

    def read_all(self, quantity: Quantity, *, tolerate_errors: bool = False) -> list[float]:  # noqa: ARG002 - queries report none
        """Ask for all setpoints, or measure all currents together with ``read? (@...)``."""
        if quantity == "V":
            return self.read_some(range(self.channel_count))
        return self._measure(range(self.channel_count))

    def _measure(self, channels: Sequence[int]) -> list[float]:
        if len(channels) == 1:
            return [self.read("I", channels[0])]
        numbers = ",".join([str(channel + 1) for channel in channels])
        parse = partial(_fields, separator=",", count=len(channels), parse=self._amperes)
        return self._link.query(f"read? (@{numbers})", parse)

    def groups(self, moves: Mapping[int, float], known: Sequence[float]) -> Iterable[dict[int, float]]:  # noqa: ARG002
        """Cut moves into as many channels as one message sets."""
        return ({channel: moves[channel] for channel in channels} for channels in _messages(sorted(moves)))

    def send(self, voltages: Mapping[int, float], *, tolerate_errors: bool = False) -> None:
        """Set a group of channels with one compound message, look into the error queue, and ask for their setpoints.

        A step that was lost, perhaps in a restart, must not make the next one a jump.
        """
        command = ";:".join([f"sour{channel + 1}:volt {volts:.6f}" for channel, volts in voltages.items()])
        try:
            self._write_checked(command)
            self._compare(voltages, self.read_some(list(voltages)))
        except DeviceError as error:
            if not tolerate_errors:
                raise
            _log.warning("%s", error)

    def check(self, channels: Iterable[int]) -> None:
        """Check, once a channel, mode and range, and at every ramp that the slew limit does not stretch its steps."""
        for channel in sorted(channels):
            if channel not in self._slew:
                self._check_word(channel, "volt:mode", ("fix", "fixed"))
                self._check_word(channel, "rang", (self._range,))
                self._slew[channel] = self._link.query(f"sour{channel + 1}:volt:slew?", _parse_slew)
            step, interval = self._pace()
            if step > self._slew[channel] * max(interval, _QUICK_S):
                raise self._link.device_error(
                    f"channel {channel} has a slew limit of {self._slew[channel]:g} V/s, too slow for ramps of "
                    f"{step:g} V every {interval:g} s; raise it (sour{channel + 1}:volt:slew) or lower ramp_step. "
                    f"Nothing was moved"
                )

    def enable(self, channels: Iterable[int]) -> Iterable[int]:
        """Bring the current sensors into the range of heaters; outputs of a QDAC-II are always on."""
        for channel in sorted(channels):
            if channel not in self._sensors:
                if self._link.query(f"sens{channel + 1}:rang?", str.lower) != "high":
                    self._write_checked(f"sens{channel + 1}:rang high")
                self._sensors.add(channel)
        return ()

    def finish(self, voltages: Mapping[int, float]) -> None:
        """Ask whether the setpoints are those that were set, and measure whether the outputs can follow them.

        Channels that were there early may have changed since, and an output at its current limit, as into a short, has
        less than its setpoint.
        """
        self._compare(voltages, self.read_some(list(voltages)))
        raised = [channel for channel, volts in voltages.items() if volts > 0.0]
        limited = raised and [
            channel
            for channel, amperes in zip(raised, self._measure(raised), strict=True)
            if not abs(amperes) < _LIMITED * self.full_current
        ]
        if limited:
            raise self._link.device_error(
                f"channels {limited} are at their current limit of {self.full_current:g} A, so their outputs have less "
                f"than the voltage that was set; look for a short, and set them to 0 V"
            )

    def _compare(self, voltages: Mapping[int, float], actual: Sequence[float]) -> None:
        for (channel, volts), found in zip(voltages.items(), actual, strict=True):
            if abs(found - volts) > _TOLERANCE_V:
                raise self._link.device_error(
                    f"channel {channel} was set to {volts:g} V, but its setpoint is {found:g} V; check whether the "
                    f"instrument has restarted and that nobody else uses it, and set it again"
                )

    def _check_word(self, channel: int, setting: str, wanted: tuple[str, ...]) -> None:
        word = self._link.query(f"sour{channel + 1}:{setting}?", str.lower)
        if word not in wanted:
            raise self._link.device_error(
                f"channel {channel} has the {setting} {word!r}, but {wanted[0]!r} is needed; set it at 0 V "
                f"(sour{channel + 1}:{setting} {wanted[0]}), or construct the driver otherwise. Nothing was moved"
            )


class QDevilQDAC2(HeaterBankInstrument, ScpiInstrument):
    """QDAC-II voltage source; implements :class:`drivers.protocols.HeaterBank`.

    Channels must be in fixed mode, in the given voltage range, and with a slew limit that follows the ramps; the driver
    checks this before it moves a channel for the first time and changes none of it. What it does change then is the
    range of the channel's current sensor, to the high one. Voltages that are read are setpoints. Connecting only asks
    (``*IDN?``); closing ramps to 0 V if this session drove a heater.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        VISA resource such as ``TCPIP0::192.168.8.17::5025::SOCKET``, or a serial port (USB).
    channels
        Number of channels in use, from the first on, up to 24; the others are never touched.
    voltage_range
        ``"high"`` (10 V) or ``"low"`` (2 V).
    timeout
        Time in s that a complete reply may take.
    ramp_step
        Largest step of a ramp in V.
    ramp_interval
        Time between two steps of a ramp in s.
    visalib
        pyvisa library.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    LinkError
        If the instrument cannot be reached or does not answer.
    IdentityError
        If something else answers.
    """

    simulated_as: ClassVar = SimulatedAs(kind="qdevil_qdac2", size_key="channels", default_size=_CHANNELS)

    def __init__(
        self,
        name: str,
        address: str,
        *,
        channels: int = _CHANNELS,
        voltage_range: VoltageRange = "high",
        timeout: float = 2.0,
        ramp_step: float = 1.0,
        ramp_interval: float = 1e-3,
        visalib: str = "@py",
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if not 1 <= channels <= _CHANNELS:
            raise ConfigurationError(
                f"{name}: channels is {channels}; a QDAC-II has {_CHANNELS}, so give 1..{_CHANNELS}"
            )
        if voltage_range not in _SPAN_V:
            raise ConfigurationError(f"{name}: voltage_range is {voltage_range!r}; give 'low' or 'high'")
        super().__init__(name, ramp_step=ramp_step, ramp_interval=ramp_interval, **kwargs)
        self.address = address
        link = self._open_link(address, visalib, b"\n", timeout, baudrate=_BAUDRATE)
        self._attach(link)
        self._wire = Qdac2Wire(
            link, channels, voltage_range, self._write_checked, lambda: (self.ramp_step, self.ramp_interval)
        )
        self._add_outputs(self._wire, address)

    def check_errors(self) -> None:
        """Raise DeviceError with everything that is in the error queue, and empty it."""
        link = self._live_link()
        with link.lock:
            errors = self._drain_queue(link)
            if errors:
                raise link.device_error(f"the error queue held {'; '.join(errors)}")

    def reconnect(self) -> None:
        """Open the link anew and check the identity again; nothing is taken for granted any more.

        Raises
        ------
        LinkError
            If the instrument cannot be reached.
        IdentityError
            If another instrument answers.
        """
        self._wire.forget_settings()
        super().reconnect()

    def _send_raw(self, cmd: str) -> None:
        self._wire.forget_settings()
        super()._send_raw(cmd)

    def _identify(self) -> None:
        self._check_identity(self.address, ("QDevil",), _MODEL)

    def _drain_queue(self, link: Link) -> list[str]:
        return [f"{code} {text}" for code, text in link.query("syst:err:all?", parse_errors) if code != 0]


def _messages(channels: Sequence[int]) -> Iterable[Sequence[int]]:
    """Cut channels into as many as one message may name."""
    return (channels[k : k + _CHANNELS_PER_MESSAGE] for k in range(0, len(channels), _CHANNELS_PER_MESSAGE))


def _fields(text: str, separator: str, count: int, parse: Callable[[str], float]) -> list[float]:
    fields = text.split(separator)
    if len(fields) != count:
        raise ValueError(f"{len(fields)} values came instead of {count}")
    return [parse(field.strip()) for field in fields]


def parse_errors(text: str) -> list[tuple[int, str]]:
    """Parse a list of entries of the error queue, such as ``-113, "Undefined header",-222, "Data out of range"``."""
    if _ERRORS.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no list of errors")
    return [(int(code), message.replace('""', '"')) for code, message in _ONE_ERROR.findall(text)]


def _parse_slew(text: str) -> float:
    """Parse a slew limit in V/s; ``inf`` and numbers that are not above 0 mean that there is none."""
    value = math.inf if text.lower() == "inf" else parse_number(text)
    return value if value > 0.0 else math.inf
