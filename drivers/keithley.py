"""Keithley 2600B source meters of one or two channels, in their own language TSP."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from qcodes.instrument import InstrumentBaseKWArgs
from typing_extensions import Unpack

from drivers._heater_bank import HeaterBankInstrument
from drivers._heater_limits import plausible
from drivers._heater_outputs import HeaterWire, Quantity
from drivers._link import Link
from drivers._parsing import parse_number, parse_reading
from drivers._scpi import ScpiInstrument
from drivers.protocols import SimulatedAs
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError

_log = logging.getLogger(__name__)

_MODEL = re.compile(r"Model 26\d\dB")
_CHANNELS = {
    "2601B": 1, "2602B": 2, "2604B": 2, "2611B": 1, "2612B": 2, "2614B": 2, "2634B": 2, "2635B": 1, "2636B": 2
}  # fmt: skip
"""Number of channels of each model."""
_SMALL_FAMILY = "260"
_FULL_SCALE = {True: (40.0, 3.0), False: (200.0, 1.5)}
"""V and A, by whether a model is of the small family."""

_VOLTS = 1
_IN_CURRENT_LIMIT, _READING_OVERFLOW = 2, 128
"""Bits of the measurement status."""
_TOLERANCE_V, _TOLERANCE = 0.05, 1e-3
"""A voltage is as set if it is measured within this many V plus this part of it."""
_LIMIT_TOLERANCE = 1e-3
_MAX_QUEUE = 100


class TspWire(HeaterWire):
    """Assignments and ``print`` of TSP. Nothing is acknowledged, so each step is measured.

    Parameters
    ----------
    link
        Open link.
    channels
        Number of channels in use.
    full_voltage, full_current
        Full scale in V and A.
    """

    has_switches = True

    def __init__(self, link: Link, channels: int, full_voltage: float, full_current: float) -> None:
        self.channel_count = channels
        self.full_voltage = full_voltage
        self.full_current = full_current
        self.min_voltage = -full_voltage
        self._link = link
        self._smus = ("smua", "smub")[:channels]
        self._limits: dict[int, float] = {}
        self._switched_on: set[int] = set()
        self._parsers = {
            "V": plausible(parse_reading, full_voltage, "V"),
            "I": plausible(parse_reading, full_current, "A"),
        }

    def limit_current(self, channel: int, amperes: float) -> None:
        """Let every ramp of a channel see to it that its compliance is a current in A, before it moves."""
        self._limits[channel] = amperes

    def read(self, quantity: Quantity, channel: int) -> float:
        """Measure; NaN if the reading overflowed."""
        return self._measure(quantity, channel)[0]

    def read_all(self, quantity: Quantity, *, tolerate_errors: bool = False) -> list[float]:  # noqa: ARG002 - queries report none
        """Measure channel by channel."""
        return [self.read(quantity, channel) for channel in range(self.channel_count)]

    def groups(self, moves: Mapping[int, float], known: Sequence[float]) -> Iterable[dict[int, float]]:  # noqa: ARG002
        """Set all channels with one line."""
        return (dict(moves),)

    def send(self, voltages: Mapping[int, float], *, tolerate_errors: bool = False) -> None:
        """Set levels, and measure that they are there: after one that was lost, or a restart, the next would jump."""
        self._link.write(";".join([f"{self._smus[c]}.source.levelv={volts:.6f}" for c, volts in voltages.items()]))
        for channel, volts in voltages.items():
            try:
                self._verify(channel, volts)
            except DeviceError as error:
                if not tolerate_errors:
                    raise
                _log.warning("%s", error)

    def _verify(self, channel: int, volts: float) -> None:
        measured, status = self._measure("V", channel)
        limited = bool(status & _IN_CURRENT_LIMIT)
        if limited or not abs(measured - volts) <= _TOLERANCE_V + _TOLERANCE * abs(volts):
            held = "is held at its current limit" if limited else "does not follow"
            raise self._failure(
                f"{self._smus[channel]} {held}: it was set to {volts:g} V and measures {measured:g} V; lower the "
                f"voltage or check load, range and limit"
            )

    def check(self, channels: Iterable[int]) -> None:
        """Refuse channels that source current."""
        for channel in sorted(channels):
            smu = self._smus[channel]
            if self._ask(f"{smu}.source.func") != _VOLTS:
                raise self._link.device_error(
                    f"{smu} is a current source; make it a voltage source with its output off "
                    f"({smu}.source.func=1) before it drives a heater. Nothing was moved"
                )

    def enable(self, channels: Iterable[int]) -> Iterable[int]:
        """See to compliances, which a restart loses, and switch outputs on that are off, at 0 V."""
        were_off = []
        for channel in sorted(channels):
            smu = self._smus[channel]
            if channel in self._limits:
                self._set_limit(smu, self._limits[channel])
            if not self._ask(f"{smu}.source.output"):
                self._switched_on.add(channel)
                self._link.write(f"{smu}.source.levelv=0")
                self._switch(smu, True)
                were_off.append(channel)
        return were_off

    def disable(self) -> None:
        """Switch the outputs off that were off before."""
        for channel in sorted(self._switched_on):
            self._switch(self._smus[channel], False)
        self._switched_on.clear()

    def drain_queue(self) -> list[str]:
        """Take all entries out of the error queue, up to a bound."""
        errors: list[str] = []
        for _ in range(_MAX_QUEUE):
            code, message = self._link.query("print(errorqueue.next())", parse_queue_entry)
            if code == 0:
                return errors
            errors.append(f"{code} {message}")
        return [*errors, f"and more than {_MAX_QUEUE} others"]

    def _switch(self, smu: str, on: bool) -> None:
        self._link.write(f"{smu}.source.output={int(on)}")
        if self._ask(f"{smu}.source.output") != int(on):
            raise self._failure(f"the output of {smu} does not go {'on' if on else 'off'}; check the interlock")

    def _set_limit(self, smu: str, amperes: float) -> None:
        if _is_near(self._ask(f"{smu}.source.limiti"), amperes):
            return
        self._link.write(f"{smu}.source.limiti={amperes:.9g}")
        actual = self._ask(f"{smu}.source.limiti")
        if not _is_near(actual, amperes):
            raise self._failure(f"the current limit of {smu} is {actual:g} A although {amperes:g} A was set")

    def _failure(self, problem: str) -> DeviceError:
        errors = self.drain_queue()
        return self._link.device_error(f"{problem}. The error queue held {'; '.join(errors) or 'nothing'}")

    def _ask(self, name: str) -> float:
        return self._link.query(f"print({name})", parse_number)

    def _measure(self, quantity: Quantity, channel: int) -> tuple[float, int]:
        smu = self._smus[channel]
        function = "v" if quantity == "V" else "i"
        return self._link.query(
            f"print({smu}.measure.{function}(), status.measurement.instrument.{smu}.condition)",
            lambda text: self._parse_measurement(quantity, text),
        )

    def _parse_measurement(self, quantity: Quantity, text: str) -> tuple[float, int]:
        value, status = split_values(text, 2)
        bits = parse_whole(status)
        return (float("nan") if bits & _READING_OVERFLOW else self._parsers[quantity](value)), bits


class Keithley2600(HeaterBankInstrument, ScpiInstrument):
    """2600B source meter; implements :class:`drivers.protocols.HeaterBank`; ``smua`` is channel 0, ``smub`` channel 1.

    A channel that sources current is refused; one whose output is off is switched on at 0 V before its first ramp, and
    off again when it is made safe. A current limit of a channel also becomes the compliance of its source, before the
    next ramp. Voltages that are read are measured. Connecting only asks (``*IDN?``); closing ramps to 0 V if this
    session drove a heater.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        VISA resource, such as ``TCPIP0::192.168.1.20::5025::SOCKET``.
    channels
        Number of channels in use, 1 or 2.
    model
        Model that must answer, such as ``"2614B"``; any by default.
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
        If something else answers, another model, or one with fewer channels.
    """

    simulated_as: ClassVar = SimulatedAs(
        kind="keithley_2600", size_key="channels", default_size=2, option_keys=("model",)
    )

    def __init__(
        self,
        name: str,
        address: str,
        *,
        channels: int = 2,
        model: str | None = None,
        timeout: float = 2.0,
        ramp_step: float = 1.0,
        ramp_interval: float = 1e-3,
        visalib: str = "@py",
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if channels not in (1, 2):
            raise ConfigurationError(f"{name}: channels is {channels}; a 2600B has 1 or 2")
        if model is not None and model not in _CHANNELS:
            raise ConfigurationError(f"{name}: model is {model!r}; models are {', '.join(_CHANNELS)}")
        super().__init__(name, ramp_step=ramp_step, ramp_interval=ramp_interval, **kwargs)
        self.address = address
        self._expected_model = model
        self._channels_in_use = channels
        link = self._open_link(address, visalib, b"\n", timeout)
        self._attach(link)
        self._wire = TspWire(link, channels, *_FULL_SCALE[self.model.startswith(_SMALL_FAMILY)])
        self._add_outputs(self._wire, address)

    @property
    def model(self) -> str:
        """Model that answers, such as ``2614B``."""
        return self._identity.model.removeprefix("Model ")

    def set_channel_limits(
        self,
        channel: int,
        *,
        max_voltage: float | None = None,
        max_current: float | None = None,
        max_power: float | None = None,
    ) -> None:
        """Set the limits of a channel in V, A and W; None leaves a limit as it is.

        A current limit also becomes the compliance of the source when the channel moves next. Otherwise see
        :meth:`HeaterBankInstrument.set_channel_limits`.

        Raises
        ------
        LimitError
            If the channel does not exist, or a limit is not positive or beyond full scale.
        """
        super().set_channel_limits(channel, max_voltage=max_voltage, max_current=max_current, max_power=max_power)
        if max_current is not None:
            self._wire.limit_current(channel, max_current)

    def check_errors(self) -> None:
        """Raise DeviceError with everything that is in the error queue, and empty it."""
        link = self._live_link()
        with link.lock:
            errors = self._wire.drain_queue()
            if errors:
                raise link.device_error(f"the error queue held {'; '.join(errors)}")

    def _identify(self) -> None:
        self._check_identity(self.address, ("Keithley",), _MODEL)
        count = _CHANNELS.get(self.model, 0)
        if count < self._channels_in_use or self._expected_model not in (None, self.model):
            raise IdentityError(
                f"{self.name} at {self.address}: a {self.model} with {count} usable channels answers, but "
                f"{self._expected_model or 'a 2600B'} with {self._channels_in_use} is expected; correct model, "
                f"channels or address"
            )


def _is_near(actual: float, wanted: float) -> bool:
    return abs(actual - wanted) <= _LIMIT_TOLERANCE * wanted


def split_values(text: str, count: int) -> list[str]:
    """Split what one ``print`` wrote into its values, which tabulators divide."""
    values = text.split("\t")
    if len(values) != count:
        raise ValueError(f"{len(values)} values came instead of {count}")
    return values


def parse_whole(text: str) -> int:
    """Parse a whole number, which TSP writes like any other: ``-2.85000e+02``."""
    value = parse_number(text)
    if not value.is_integer():
        raise ValueError(f"{text!r} is no whole number")
    return int(value)


def parse_queue_entry(text: str) -> tuple[int, str]:
    """Parse an entry of the error queue: code, message, severity and node."""
    code, message, severity, node = split_values(text, 4)
    parse_whole(severity)
    parse_whole(node)
    return parse_whole(code), message
