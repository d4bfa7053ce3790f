"""Nicslab XPOW: 8 or 40 channels of voltage and current on a serial line."""

import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from qcodes.instrument import InstrumentBaseKWArgs
from qcodes.validators import Ints
from typing_extensions import Unpack

from drivers._heater_bank import HeaterBankInstrument
from drivers._heater_limits import plausible
from drivers._heater_outputs import HeaterWire, Quantity
from drivers._link import Dialect, Link
from drivers._parsing import Identity, parse_reading
from drivers._serial_port import SerialPort
from drivers.protocols import SimulatedAs
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LimitError, LinkTimeoutError, ReplyError
from optinc_hw.units import ma_to_a

_log = logging.getLogger(__name__)

_BAUDRATE = 115200
_CHANNELS = (8, 40)
_FULL_VOLTAGE_V, _FULL_CURRENT_A = 30.0, 0.3
"""What laboratories allow; the converters reach 40 V."""
_CONVERTER_V, _HIGHEST_COUNT = 40.0, 65535
_ATTEMPTS = 3

_IDENTITY = re.compile(r"(?<![A-Za-z])XPOW[-\w]*", re.ASCII)
_STUTTER = re.compile(r"(\w)\1\1", re.ASCII)  # what a bad line makes of the first character
_COUNTS_REPLY = re.compile(r"([^=]*)=([^=,]*)V,([^=,]*)mA", re.ASCII)
_UNITS_REPLY = re.compile(r"CH:(\d+):([^:]*):([^:]*)", re.ASCII)
_NAMED_CHANNEL = re.compile(r"(?:CH:|Channel )(\d+)", re.ASCII)

_DIALECT = Dialect(
    terminator=b"\n",
    resync_command="*IDN?",
    resync_reply=re.compile(rb"[ -~]*XPOW[ -~]*"),
    confirm_command="CH:1:VAL?",
    confirm_reply=re.compile(rb"[^=]*=[^=,]*V,[^=,]*mA|CH:\d+:[^:]*:[^:]*"),
)

XpowDialect = Literal["counts", "units"]
"""How a firmware writes levels: counts of the converters, or V and mA."""


class XpowWire(HeaterWire):
    """Text commands of an XPOW, whose sets are not acknowledged: each is read back, and repeated if it was lost.

    Only voltages are set. A current level might switch a channel over to regulating its current.

    Parameters
    ----------
    link
        Open link.
    channels
        Number of channels.
    dialect
        How the firmware writes levels and readings.
    tolerance
        Largest difference in V between a set voltage and its read-back.
    settle
        Waits after a set until it can be read back.
    """

    full_voltage = _FULL_VOLTAGE_V
    full_current = _FULL_CURRENT_A

    def __init__(
        self, link: Link, channels: int, dialect: XpowDialect, tolerance: float, settle: Callable[[], None]
    ) -> None:
        self.channel_count = channels
        self.start_tolerance = tolerance
        self.repeated_sets = 0
        self._repeated_before = 0
        self._last_read: dict[int, float] = {}
        self._link = link
        self._dialect = dialect
        self._tolerance = tolerance
        self._settle = settle
        self._volts = plausible(parse_reading, _CONVERTER_V, "V")
        self._amperes = plausible(lambda text: ma_to_a(parse_reading(text)), _FULL_CURRENT_A, "A")

    def read(self, quantity: Quantity, channel: int) -> float:
        """Measure with ``CH:<n>:VAL?``, which tells both quantities."""
        volts, amperes = self._link.query(f"CH:{channel + 1}:VAL?", lambda text: self._parse(channel, text))
        self._last_read[channel] = volts
        return volts if quantity == "V" else amperes

    def read_all(self, quantity: Quantity, *, tolerate_errors: bool = False) -> list[float]:  # noqa: ARG002 - it reports none
        """Measure channel by channel."""
        return [self.read(quantity, channel) for channel in range(self.channel_count)]

    def send(self, voltages: Mapping[int, float], *, tolerate_errors: bool = False) -> None:
        """Set channels and see in the read-back that they took it."""
        for channel, volts in voltages.items():
            try:
                self._set(channel, volts)
            except DeviceError as error:
                if not tolerate_errors:
                    raise
                _log.warning("%s", error)

    def finish(self, voltages: Mapping[int, float]) -> None:
        """Read all channels of a ramp back if a set was lost on the way: in a restart, earlier ones fell to 0 V."""
        lost, self._repeated_before = self.repeated_sets > self._repeated_before, self.repeated_sets
        fallen = [channel for channel in voltages if lost and not self._holds(channel, voltages[channel])]
        if fallen:
            raise self._link.device_error(
                f"channels {fallen} are not at the voltages that they were set to, and sets were lost; check the "
                f"supply of the instrument, which may have restarted"
            )

    def _holds(self, channel: int, volts: float) -> bool:
        return abs(self.read("V", channel) - volts) <= self._tolerance

    def _set(self, channel: int, volts: float) -> None:
        before = self._last_read.get(channel, math.nan)
        read = 0.0
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._link.mishaps += 1  # a set is lost, perhaps in a restart
                if abs(read - before) > self._tolerance:  # sending it again could be a jump
                    raise self._link.device_error(
                        f"channel {channel} was at {before:g} V, was set to {volts:.4f} V and reads {read:g} V; check "
                        f"the supply of the instrument, which may have restarted, and that the channel is not limited "
                        f"by its current"
                    )
                self.repeated_sets += 1
            self._link.write(f"CH:{channel + 1}:VOLT:{self._level(volts)}")
            self._settle()
            read = self.read("V", channel)
            if abs(read - volts) <= self._tolerance:
                return
        raise self._link.device_error(
            f"channel {channel} was set to {volts:.4f} V {_ATTEMPTS} times and still reads {read:g} V, more than "
            f"{self._tolerance:g} V off; check that it is not limited by its current and that nobody else uses it"
        )

    def _level(self, volts: float) -> str:
        if self._dialect == "counts":
            return str(round(volts * _HIGHEST_COUNT / _CONVERTER_V))
        return f"{volts:.4f}"

    def _parse(self, channel: int, text: str) -> tuple[float, float]:
        """Parse a reading in V and A; whatever the reply tells of its channel must be right."""
        form = _COUNTS_REPLY if self._dialect == "counts" else _UNITS_REPLY
        match = form.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no reading in the dialect {self._dialect!r}")
        named = _NAMED_CHANNEL.findall(match[1]) if self._dialect == "counts" else [match[1]]
        if any(int(number) != channel + 1 for number in named):
            raise ValueError(f"{text!r} is a reading of another channel than {channel + 1}")
        return self._volts(match[2].strip()), self._amperes(match[3].strip())


class NicslabXPOW(HeaterBankInstrument):
    """XPOW source; implements :class:`drivers.protocols.HeaterBank`.

    Its sets have no reply, so each step of a ramp is read back, repeated up to twice if it was lost, and counted in
    ``repeated_sets``. Connecting only asks (``*IDN?``, the reading of the last channel); closing ramps to 0 V if this
    session drove a heater.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        Serial port or pyserial URL: ``/dev/ttyACM0``, ``COM3``, ``socket://host:port``.
    channels
        Number of channels, 8 or 40.
    dialect
        ``"counts"`` if the firmware takes levels as counts of its converters, ``"units"`` if in V. The form of the
        readings shows a wrong one when connecting.
    timeout
        Time in s that a complete reply may take.
    ramp_step
        Largest step of a ramp in V.
    ramp_interval
        Time between two steps of a ramp in s.
    tolerance
        Largest difference in V between a set voltage and its read-back.
    settling_time
        Time in s after a set until it is read back.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    LinkError
        If the port cannot be opened or nothing answers.
    IdentityError
        If this is no XPOW, or one of another size or dialect.
    """

    simulated_as: ClassVar = SimulatedAs(
        kind="nicslab_xpow", size_key="channels", default_size=None, option_keys=("dialect",)
    )

    def __init__(
        self,
        name: str,
        address: str,
        *,
        channels: int,
        dialect: XpowDialect = "counts",
        timeout: float = 1.0,
        ramp_step: float = 1.0,
        ramp_interval: float = 1e-3,
        tolerance: float = 0.05,
        settling_time: float = 0.01,
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if channels not in _CHANNELS:
            raise ConfigurationError(f"{name}: channels is {channels}; an XPOW has 8 or 40")
        if dialect not in ("counts", "units"):
            raise ConfigurationError(f"{name}: dialect is {dialect!r}; give 'counts' or 'units'")
        if not (tolerance > 0.0 and settling_time >= 0.0):
            raise LimitError(
                f"{name}: tolerance is {tolerance} V and settling_time {settling_time} s; give a tolerance above 0 V "
                f"and a time of 0 s or more"
            )
        super().__init__(name, ramp_step=ramp_step, ramp_interval=ramp_interval, **kwargs)
        self.address = address
        self._identity: Identity | None = None
        link = Link(SerialPort(address, _BAUDRATE), _DIALECT, owner=name, timeout=timeout, shared_line=True)
        self._wire = XpowWire(link, channels, dialect, tolerance, lambda: self.clock.sleep(settling_time))
        self._attach(link)
        self._add_outputs(self._wire, address)
        self.repeated_sets = self.add_parameter(
            "repeated_sets",
            label="Repeated sets",
            unit="",
            vals=Ints(min_value=0),
            get_cmd=lambda: self._wire.repeated_sets,
            initial_cache_value=0,
            docstring="Get how many sets of this session were lost and had to be repeated.",
        )

    def _identify(self) -> None:
        identity = self._ask_identity()
        if self._identity is not None and identity != self._identity:
            raise IdentityError(
                f"{self.name} at {self.address}: {identity} answers now, but it was {self._identity}; another "
                f"instrument is at this address"
            )
        self._identity = identity
        last = self._wire.channel_count - 1
        try:
            self._wire.read("V", last)
        except (LinkTimeoutError, ReplyError) as error:
            raise IdentityError(
                f"{self.name} at {self.address}: channel {last} does not answer as the last of "
                f"{self._wire.channel_count} channels should in this dialect; correct channels or dialect ({error})"
            ) from error

    def _ask_identity(self) -> Identity:
        return self._live_link().query("*IDN?", _parse_identity)


def _parse_identity(text: str) -> Identity:
    match = _IDENTITY.search(text)
    if match is None or _STUTTER.match(text) is not None:
        raise ValueError(f"{text!r} names no XPOW")
    return Identity("Nicslab", match[0], "", "")
