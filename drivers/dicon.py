"""DiCon MEMS 1xN switch modules on a serial line."""

import re
from typing import ClassVar

from qcodes.instrument import InstrumentBaseKWArgs
from qcodes.validators import Ints
from typing_extensions import Unpack

from drivers._link import Dialect, Link
from drivers._parsing import Identity, parse_integer
from drivers._serial_port import SerialPort
from drivers._switch import SwitchInstrument
from drivers.protocols import SimulatedAs
from optinc_hw.errors import ConfigurationError, IdentityError

_BAUDRATE = 115200
_ATTEMPTS = 3
# CF? also has letters, but ends with a comma and the number of channels.
_IDENTITY = re.compile(rb"(?!.*,\s*\d+$).*[A-Za-z].*")
_CONFIGURATION = re.compile(r".*\D(\d+)", re.ASCII)


class DiConMemsSwitch(SwitchInstrument):
    """One of N inputs, or none, on the common output; implements :class:`drivers.protocols.Switch`.

    Light goes both ways, so the common port may be the input as well. Connecting only asks (``ID?``, ``CF?``);
    closing leaves the switch as it stands.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        Serial port or pyserial URL: ``/dev/ttyUSB0``, ``COM3``, ``socket://host:port``.
    channels
        Number of channels N; checked when connecting.
    timeout
        Time in s that a complete reply may take.
    settle_time
        Time in s to wait on the instrument's clock after a change; the mirrors need 10 to 25 ms.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    LinkError
        If the port cannot be opened or nothing answers.
    IdentityError
        If the module has another number of channels, or something else answers.
    """

    simulated_as: ClassVar = SimulatedAs("dicon_1xn", "channels", None)

    def __init__(
        self,
        name: str,
        address: str,
        *,
        channels: int,
        timeout: float = 1.0,
        settle_time: float = 0.025,
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if channels < 1:
            raise ConfigurationError(f"{name}: channels is {channels}; give the number of channels, 1 or more")
        super().__init__(name, **kwargs)
        self.address = address
        self.settle_time = settle_time
        self._channels = channels
        self._identity_text: str | None = None
        dialect = Dialect(terminator=b"\n", command_terminator=b"\r", resync_command="ID?", resync_reply=_IDENTITY)
        port = SerialPort(address, _BAUDRATE)
        self._attach(Link(port, dialect, owner=name, timeout=timeout, shared_line=True))
        self.channel = self.add_parameter(
            "channel",
            label="Selected channel",
            unit="",
            vals=Ints(-1, channels - 1),
            get_cmd=lambda: self._ask_position() - 1,
            set_cmd=self._select,
            docstring="Control the 0-based channel on the common port; -1 is parked, without light.",
        )

    @property
    def input_count(self) -> int:
        """Number of channels."""
        return self._channels

    @property
    def output_count(self) -> int:
        """1, the common port."""
        return 1

    def connect(self, input_port: int, output_port: int = 0) -> None:
        """Bring a channel (0-based) to the common port and wait for the mirror.

        Raises
        ------
        LimitError
            If a port does not exist; nothing was changed.
        DeviceError
            If the switch stands otherwise afterwards.
        """
        channel = self._checked("input", input_port, self._channels)
        self._checked("output", output_port, 1)
        self._select(channel)

    def disconnect(self, input_port: int) -> None:
        """Park if a channel (0-based) is on the common port; leave another one there.

        Raises
        ------
        LimitError
            If the port does not exist; nothing was changed.
        DeviceError
            If the switch stands otherwise afterwards.
        """
        channel = self._checked("input", input_port, self._channels)
        with self._live_link().lock:
            if channel in self.connections():
                self._select(-1)

    def park(self) -> None:
        """Let no light through; raises DeviceError if the switch stands otherwise afterwards."""
        self._select(-1)

    def connections(self) -> dict[int, int]:
        """Ask for the channel (0-based) on the common port; empty when parked."""
        selected = self.channel.get()
        return {} if selected < 0 else {selected: 0}

    def _select(self, channel: int) -> None:
        link = self._live_link()
        with link.lock:
            for _ in range(_ATTEMPTS):
                # Setting commands have no reply: only reading back tells whether one arrived.
                link.write("PK" if channel < 0 else f"I1 {channel + 1}")
                found = self._ask_position() - 1
                if found == channel:
                    break
                self.log.warning(
                    "%s: is at channel %d although %d was set; setting it again", self.name, found, channel
                )
            else:
                raise link.device_error(
                    f"the switch is at channel {found} (-1: parked) although {channel} was set {_ATTEMPTS} times; "
                    f"check that nobody else uses it"
                )
            self.channel.cache.set(channel)
        self.clock.sleep(self.settle_time)

    def _ask_position(self) -> int:
        return self._live_link().query("I1?", self._parse_position)

    def _parse_position(self, text: str) -> int:
        position = parse_integer(text)
        if not 0 <= position <= self._channels:
            raise ValueError(f"{text!r} is no position of a switch of {self._channels} channels")
        return position

    def _ask_identity(self) -> Identity:
        return Identity("DiCon", self._live_link().query("ID?", _parse_identity), "", "")

    def _identify(self) -> None:
        identity = self._ask_identity()
        count = self._live_link().query("CF?", _parse_configuration)
        if count != self._channels:
            raise IdentityError(
                f"{self.name} at {self.address}: the switch has {count} channels, but {self._channels} are expected; "
                f"correct channels or the address"
            )
        if self._identity_text not in (None, identity.model):
            raise IdentityError(
                f"{self.name} at {self.address}: {identity.model!r} answers now, but it was {self._identity_text!r}; "
                f"another instrument is at this address"
            )
        self._identity_text = identity.model

    def _snapshot_complete(self) -> bool:
        return bool(self.IDN.cache.valid and self.channel.cache.valid)

    def _refresh(self) -> None:
        self.IDN.get()
        self.channel.get()


def _parse_identity(text: str) -> str:
    if _IDENTITY.fullmatch(text.encode()) is None:
        raise ValueError(f"{text!r} is no identity")
    return text


def _parse_configuration(text: str) -> int:
    match = _CONFIGURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no configuration that ends with the number of channels")
    return int(match[1])
