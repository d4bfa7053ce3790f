"""Habits that SCPI instruments share: identity, error queue, checked writes."""

import re
from typing import ClassVar

from drivers._instrument import LinkedInstrument
from drivers._link import Dialect, Link
from drivers._parsing import Identity, parse_identity, parse_system_error
from drivers._serial_port import SerialPort
from drivers._visa_port import VisaPort
from optinc_hw.errors import DeviceError, IdentityError

_MAX_QUEUE = 100
_IDENTITY_REPLY = re.compile(rb"[^,]*[A-Za-z][^,]*,[^,]+,[^,]*,[^,]*")


class ScpiInstrument(LinkedInstrument):
    """A SCPI instrument over VISA, with its identity in ``*IDN?`` and its errors in a queue."""

    _identity_reply: ClassVar[re.Pattern[bytes]] = _IDENTITY_REPLY
    """Form of the answer to ``*IDN?``, which no other reply of the instrument may have."""

    _queue_is_ours_since: int | None = None
    """Mishaps of the link when everything in the error queue came from this session; None if it never did."""

    def _open_link(
        self, address: str, visalib: str, terminator: bytes, timeout: float, *, baudrate: int | None = None
    ) -> Link:
        """Open a VISA resource or, if a baud rate is given and the address is no VISA resource, a serial port."""
        dialect = Dialect(terminator=terminator, resync_command="*IDN?", resync_reply=self._identity_reply)
        if baudrate is None or "::" in address:
            port = VisaPort(address, visalib, terminator)
            return Link(port, dialect, owner=self.name, timeout=timeout, shared_line=False)
        return Link(SerialPort(address, baudrate), dialect, owner=self.name, timeout=timeout, shared_line=True)

    def _check_identity(self, address: str, vendors: tuple[str, ...], model: re.Pattern[str]) -> Identity:
        """Check who answers, and that it is the one of before after a reconnection."""
        identity = self._ask_identity()
        known = identity.vendor.upper().startswith(tuple(vendor.upper() for vendor in vendors))
        if not known or model.fullmatch(identity.model) is None:
            raise IdentityError(
                f"{self.name} at {address}: {identity} answers, but a {vendors[0]} {model.pattern} is expected; "
                f"correct the address or the driver"
            )
        before: Identity | None = getattr(self, "_identity", None)
        if before is not None and identity != before:
            raise IdentityError(
                f"{self.name} at {address}: {identity} answers now, but it was {before}; another instrument is at this "
                f"address"
            )
        self._identity = identity
        return identity

    def _ask_identity(self) -> Identity:
        return self._live_link().query("*IDN?", parse_identity)

    def _write_checked(self, *commands: str) -> None:
        """Send set commands and raise DeviceError with every entry that they put into the error queue."""
        link = self._live_link()
        with link.lock:
            if self._queue_is_ours_since != link.mishaps:
                left = self._drain_queue(link)
                if left:
                    self.log.warning("%s: errors left in the queue by others: %s", self.name, "; ".join(left))
                self._queue_is_ours_since = link.mishaps
            for command in commands:
                link.write(command)
            errors = self._drain_queue(link)
            if errors:
                after = ", ".join(map(repr, commands)) or "the last commands"
                raise link.device_error(f"after {after} the error queue held {'; '.join(errors)}")

    def _not_applied(self, setting: str, actual: object, wanted: object, unit: str) -> DeviceError:
        """Make the error of a setting that the instrument took without a word, but not as it was sent."""
        return self._live_link().device_error(
            f"{setting} is {actual} {unit} although {wanted} {unit} was set; choose a value that the instrument "
            f"supports, and check that nobody else uses it"
        )

    def _drain_queue(self, link: Link) -> list[str]:
        errors: list[str] = []
        for _ in range(_MAX_QUEUE):
            code, text = link.query(self._error_query, parse_system_error)
            if code == 0:
                return errors
            errors.append(self._explain_error(code, text))
        return [*errors, f"and more than {_MAX_QUEUE} others"]

    def _explain_error(self, code: int, text: str) -> str:
        """Put an entry of the error queue into words."""
        return f"{code} {text}"

    _error_query = "syst:err?"
