"""What every driver of this package shares on top of the QCoDeS ``Instrument``."""

import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

from qcodes.instrument import Instrument, InstrumentBaseKWArgs
from qcodes.validators import Numbers
from typing_extensions import Unpack

from drivers._link import Link
from drivers._parsing import Identity
from optinc_hw.clock import Clock, WallClock
from optinc_hw.errors import ConfigurationError, LinkError, OptincError

SnapshotUpdate = bool | Literal["All", "Only_invalid", "Never"] | None
"""How a snapshot may use the bus: True or "All", None or "Only_invalid", False or "Never"."""


class LinkedInstrument(Instrument):
    """An instrument behind a :class:`drivers._link.Link`.

    Connecting only asks. Closing is idempotent, never fails because of a dead link, and brings the instrument into
    its safe state first if this session changed its outputs.

    Parameters
    ----------
    name
        Python identifier, free among the open QCoDeS instruments.
    **kwargs
        ``metadata`` and ``label``, as for every QCoDeS instrument.

    Raises
    ------
    ConfigurationError
        If the name is no identifier or is taken.
    """

    # A class-level default, because QCoDeS strips all attributes of an instance when it closes it.
    _link: Link | None = None

    def __init__(self, name: str, **kwargs: Unpack[InstrumentBaseKWArgs]) -> None:
        if not name.isidentifier():
            raise ConfigurationError(
                f"instrument name {name!r} is no Python identifier; use letters, digits and underscores, no digit first"
            )
        if Instrument.exist(name):
            raise ConfigurationError(f"an instrument named {name!r} is open already; close it or use another name")
        super().__init__(name, **kwargs)
        self.clock: Clock = WallClock()

    def reconnect(self) -> None:
        """Open the link anew and check the identity again; use it when the link broke.

        Raises
        ------
        LinkError
            If the instrument cannot be reached.
        IdentityError
            If another instrument answers.
        """
        link = self._live_link()
        with link.lock:
            link.reopen()
            try:
                self._identify()
            except BaseException:
                link.drop()  # whoever answers there must not get our commands
                raise

    def get_idn(self) -> dict[str, str | None]:
        """Ask for vendor, model, serial and firmware; raises LinkError if the instrument does not answer."""
        return self._ask_identity().as_dict()

    def connect_message(self, idn_param: str = "IDN", begin_time: float | None = None) -> None:
        """Log, and do not print, which instrument the parameter ``idn_param`` finds, connected since ``begin_time``."""
        taken = time.time() - (begin_time or self._t0)
        self.log.info("connected to %s in %.2f s", self.parameters[idn_param].get(), taken)

    def ask_raw(self, cmd: str) -> str:
        """Send the query ``cmd`` and return its one reply line."""
        return self._live_link().query(cmd, str)

    def write_raw(self, cmd: str) -> None:
        """Send the command ``cmd``, which has no reply."""
        self._live_link().write(cmd)

    def close(self) -> None:
        """Bring the instrument into its safe state if this session changed it, and close the link."""
        link = self._link
        if link is not None:
            try:
                if self._is_driven() and not link.inherited:
                    self.make_safe()
            except OptincError as error:
                self.log.error("%s may not be in its safe state after closing: %s", self.name, error)
            finally:
                link.close()
        super().close()

    @abstractmethod
    def make_safe(self) -> None:
        """Bring the instrument into its safe state."""

    def snapshot_base(
        self, update: SnapshotUpdate = False, params_to_skip_update: Sequence[str] | None = None
    ) -> dict[Any, Any]:  # Any: QCoDeS leaves the layout of snapshots open
        """Take a snapshot of plain JSON types with a fixed, small number of exchanges.

        Parameters
        ----------
        update
            True or "All" reads the instrument in bulk; None or "Only_invalid" does so only if a value was never
            read; False or "Never" does not touch the bus.
        params_to_skip_update
            Accepted for QCoDeS; the bulk read does not go parameter by parameter.
        """
        wanted = update in (True, "All") or (update in (None, "Only_invalid") and not self._snapshot_complete())
        if wanted:
            try:
                self._refresh()
            except OptincError as error:
                self.log.warning("snapshot of %s shows the last known values: %s", self.name, error)
        snapshot: dict[Any, Any] = super().snapshot_base(False, params_to_skip_update)
        return snapshot

    def _live_link(self) -> Link:
        if self._link is None:
            raise LinkError("the instrument is closed; construct it again")
        return self._link

    def _attach(self, link: Link) -> None:
        """Take over ``link`` and check who answers; closes the link if that fails."""
        self._link = link
        try:
            self._identify()
        except BaseException:
            self._link = None
            link.close()
            raise
        self.add_parameter(
            "timeout",
            label="Reply timeout",
            unit="s",
            vals=Numbers(min_value=1e-3, max_value=600.0),
            get_cmd=lambda: link.timeout,
            set_cmd=self._set_timeout,
            initial_cache_value=link.timeout,
            docstring="Control how long a complete reply may take.",
        )

    def _set_timeout(self, seconds: float) -> None:
        self._live_link().timeout = float(seconds)

    @abstractmethod
    def _is_driven(self) -> bool:
        """Tell whether this session has changed an output."""

    @abstractmethod
    def _identify(self) -> None:
        """Check, with queries only, that the expected instrument answers."""

    @abstractmethod
    def _ask_identity(self) -> Identity:
        """Ask who is there, with queries only."""

    @abstractmethod
    def _snapshot_complete(self) -> bool:
        """Tell whether every value that a snapshot shows has been read before."""

    @abstractmethod
    def _refresh(self) -> None:
        """Read every value that a snapshot shows, in bulk, into the caches."""
