"""A heater driver of one's own in one file, on the base classes of this package.

The instrument is a voltage source that takes lines such as ``V3=1.25`` (answer ``OK``), ``V3?`` (answer ``1.2501 V``)
and ``I3?`` (answer ``1.0432 mA``), ended by a line feed.  Example 04 runs this driver on a simulated bench.
"""

import re
from collections.abc import Mapping

from drivers.base import Dialect, HeaterBankInstrument, HeaterWire, Identity, Link, SerialPort

VOLTS, MILLIAMPERES = re.compile(r"([+-]?\d+\.\d+) V"), re.compile(r"([+-]?\d+\.\d+) mA")


class LabWire(HeaterWire):
    """The instrument's commands; whoever calls has locked the link and checked the limits."""

    def __init__(self, link: Link, channels: int) -> None:
        self.channel_count = channels
        self.full_voltage, self.full_current = 12.0, 24e-3
        self._link = link

    def read(self, quantity: str, channel: int) -> float:
        return self._link.query(f"{quantity}{channel}?", parse_volts if quantity == "V" else parse_amperes)

    # tolerate_errors is for instruments that report errors of single channels; this one reports none.
    def read_all(self, quantity: str, *, tolerate_errors: bool = False) -> list[float]:  # noqa: ARG002
        return [self.read(quantity, channel) for channel in range(self.channel_count)]

    def send(self, voltages: Mapping[int, float], *, tolerate_errors: bool = False) -> None:  # noqa: ARG002
        for channel, volts in voltages.items():
            self._link.query(f"V{channel}={volts:.5f}", parse_ok)


class LabHeaters(HeaterBankInstrument):
    """Voltage source for heaters; ramps, limits and safe state come from the base class."""

    def __init__(self, name: str, address: str, *, channels: int, timeout: float = 1.0) -> None:
        super().__init__(name, ramp_step=1.0, ramp_interval=1e-3)  # the bench sets those of chip.yaml
        # The identity is asked after a mishap, to find the place in the stream again: no other reply looks like it.
        dialect = Dialect(terminator=b"\n", resync_command="ID?", resync_reply=re.compile(rb"\w+-\d+"))
        port = SerialPort(address, 115200)
        self._attach(Link(port, dialect, owner=name, timeout=timeout, shared_line=True))
        self._add_outputs(LabWire(self._live_link(), channels), address)

    def _ask_identity(self) -> Identity:
        vendor, serial = self._live_link().query("ID?", parse_id)
        return Identity(vendor=vendor, model="voltage source", serial=serial, firmware="")

    def _identify(self) -> None:
        self._ask_identity()


def parse_id(text: str) -> tuple[str, str]:
    vendor, serial = text.split("-")  # a ValueError becomes a ReplyError with the bytes
    return vendor, serial


def parse_ok(text: str) -> None:
    if text != "OK":
        raise ValueError(f"{text!r} is no OK")


def parse_volts(text: str) -> float:
    return number(VOLTS, text)


def parse_amperes(text: str) -> float:
    return 1e-3 * number(MILLIAMPERES, text)


def number(form: re.Pattern[str], text: str) -> float:
    found = form.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not of the form {form.pattern}")
    return float(found[1])
