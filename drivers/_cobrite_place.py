"""A place in a CoBrite chassis: who answers, what laser is there, and how its commands are acknowledged."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from qcodes.instrument import InstrumentBaseKWArgs
from typing_extensions import Unpack

from drivers._cobrite_protocol import (
    DIALECT,
    Refusal,
    parse_acknowledgement,
    parse_identity,
    parse_layout,
    parse_limits,
    parse_refusal,
)
from drivers._laser import LaserInstrument
from drivers._link import Link
from drivers._parsing import Identity, parse_integer
from drivers._visa_port import VisaPort
from optinc_hw.errors import ConfigurationError, IdentityError

T = TypeVar("T")

_MODELS = ("DX", "DX2", "MX")
_VENDOR = re.compile(r"ID[ _-]?Photonics.*", re.IGNORECASE)


class CobritePlace(LaserInstrument):
    """The laser at a port of a CoBrite chassis; see :class:`drivers.cobrite.CobriteLaser` for the arguments."""

    def __init__(
        self,
        name: str,
        address: str,
        *,
        model: str,
        port: Sequence[int],
        timeout: float,
        max_power: float,
        visalib: str,
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if model not in _MODELS:
            raise ConfigurationError(f"{name}: model {model!r} is unknown; give one of {', '.join(_MODELS)}")
        if len(port) != 3 or any(number < 1 for number in port):
            raise ConfigurationError(f"{name}: port {port!r} is not chassis, slot and device, each from 1")
        super().__init__(name, max_power, **kwargs)
        self.address = address
        self.model = model
        self.port = (port[0], port[1], port[2])
        self._place = ",".join(map(str, self.port))
        port_to_chassis = VisaPort(address, visalib, DIALECT.terminator)
        self._attach(Link(port_to_chassis, DIALECT, owner=name, timeout=timeout, shared_line=False))

    def write_raw(self, cmd: str) -> None:
        """Send the command ``cmd`` and check its acknowledgement; raises DeviceError if the laser refuses."""
        self._answer(cmd, parse_acknowledgement)

    def log_in(self, password: str = "IDP") -> None:
        """Get the rights that some commands need; the password is the factory's by default.

        Raises
        ------
        DeviceError
            If the password is not accepted.
        """
        with self._live_link().lock:
            self._answer(f"PASS {password}", parse_acknowledgement)
            if self._ask_access_level() < 1:
                raise self._live_link().device_error("the password was not accepted")

    def _ask_access_level(self) -> int:
        return self._answer("PASS?", parse_integer)

    def _set(self, command: str, value: str) -> None:
        """Set a value of this laser; the laser acknowledges or refuses."""
        self._answer(f"{command} {self._place},{value}", parse_acknowledgement)

    def _expect(self, query: str, parse: Callable[[str], float], wanted: float, tolerance: float, unit: str) -> None:
        """Read a value back."""
        actual = self._ask(query, parse)
        if not abs(actual - wanted) <= tolerance:
            raise self._not_applied(query.rstrip("?"), actual, wanted, unit)

    def _ask(self, query: str, parse: Callable[[str], T]) -> T:
        """Ask about this laser."""
        return self._answer(f"{query} {self._place}", parse)

    def _answer(self, command: str, parse: Callable[[str], T]) -> T:
        """Send a command or query and parse its answer; raises DeviceError if the laser refuses."""

        def parse_answer(text: str) -> T | Refusal:
            refusal = parse_refusal(text)
            return parse(text) if refusal is None else refusal

        link = self._live_link()
        answer = link.query(command, parse_answer)
        if isinstance(answer, Refusal):
            raise link.device_error(f"{command!r} was refused with {answer}")
        return answer

    def _identify(self) -> None:
        identity = self._ask_identity()
        if _VENDOR.fullmatch(identity.vendor) is None or not identity.model.upper().startswith("COBRITE"):
            raise IdentityError(
                f"{self.name} at {self.address}: {identity} answers, but an ID Photonics CoBrite is expected; correct "
                f"the address or the driver"
            )
        before: Identity | None = getattr(self, "_identity", None)
        if before is not None and identity != before:
            raise IdentityError(
                f"{self.name} at {self.address}: {identity} answers now, but it was {before}; another instrument is at "
                f"this address"
            )
        is_mx, devices = self._answer("LAY?", parse_layout)
        chassis, slot, device = self.port
        if is_mx != (self.model == "MX") or device > devices.get((chassis, slot), 0):
            found = ", ".join(f"{count} at {place[0]},{place[1]}" for place, count in devices.items())
            raise IdentityError(
                f"{self.name} at {self.address}: a CoBrite {'MX' if is_mx else 'DX'} answers with these lasers by "
                f"chassis and slot: {found}; model is {self.model}, port is {self._place}. Correct model or port"
            )
        self._limits = self._ask("LIM?", parse_limits)
        self._identity = identity

    def _ask_identity(self) -> Identity:
        return self._answer("*IDN?", parse_identity)
