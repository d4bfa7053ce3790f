"""Remote executor: the client of a chip host."""

import math
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from optinc_hw.aggregation import _host_messages as messages
from optinc_hw.aggregation._executor import Answers, Progress, answers_in_range, checked_out
from optinc_hw.aggregation._host_errors import ChipHostError
from optinc_hw.aggregation._host_frames import ProtocolError, codes_from_wire, codes_to_wire, wire_size
from optinc_hw.aggregation._remote_call import Call, Terms
from optinc_hw.aggregation._remote_link import (
    Connect,
    LinkDownError,
    NoHostError,
    Peer,
    Session,
    TurnedAwayError,
    open_link,
)
from optinc_hw.clock import Clock, WallClock
from optinc_hw.errors import AggregationError
from optinc_hw.onn import check_codes

Asked = TypeVar("Asked")


class RemoteExecutor:
    """The executor of a `ChipHost`, used from another process or machine.

    Several threads may call it; each call under way has a link of its own.  A link that breaks is opened anew, and the
    request is asked for, not sent again, unless the host is sure that it never arrived.

    Parameters
    ----------
    address
        Address and port of the host, such as ``"127.0.0.1:5600"`` or ``"[::1]:5600"``.
    token
        The host's secret, if it has one.
    timeout_s
        Longest time in s from a call to its answer or error.  On the chip host's rank of `optinc_hook` it should be
        below three quarters of the hook's, so that this error, which names the cause, comes first.
    reconnect_s
        Longest time in s without a host before a call ends with an error.
    progress
        Called with (vectors done, vectors in all) while a request runs, about once in a hundredth of it, if the host's
        executor tells.
    clock
        Time for deadlines and pauses.
    rng
        Source of requests' names, for tests that repeat; None: the system's.
    connect
        Opens a link, as ``socket.create_connection`` does, for tests and tunnels.

    Attributes
    ----------
    servers, bits, inputs : int
        Of the host's executor.
    batch_limit : int
        Most elements in one request.

    Raises
    ------
    AggregationError
        If an argument is out of range.
    ChipHostError
        If the host cannot be reached, or its token or version differs.

    Notes
    -----
    It can be pickled; the copy opens links of its own.  The token is not written; a copy that needs one must be made
    anew.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        *,
        timeout_s: float = 200.0,
        reconnect_s: float = 30.0,
        progress: Progress | None = None,
        clock: Clock | None = None,
        rng: np.random.Generator | None = None,
        connect: Connect = open_link,
    ) -> None:
        for name, value in (("timeout_s", timeout_s), ("reconnect_s", reconnect_s)):
            if not 0.0 < value < math.inf:
                raise AggregationError(f"{name} must be positive and finite, got {value!r}")
        if token is not None:
            messages.check_token(token)
        ticking = WallClock() if clock is None else clock
        self._terms = Terms(address, timeout_s, reconnect_s, ticking, progress)
        self._peer = Peer(_split(address), token, ticking, connect)
        self._rng = rng
        self._idle: list[Session] = []
        self._lock = threading.Lock()
        self._served = self._asked(lambda session, until: session.link(until).welcome)
        self.servers = self._served.servers
        self.bits = self._served.bits
        self.inputs = self._served.inputs
        self.batch_limit = self._served.most_elements

    @answers_in_range
    def run(self, codes: ArrayLike, out: Answers | None = None) -> Answers:
        """Return the host's answers (batch,) to the servers' codes (batch, servers), of type int64 or in ``out``.

        Raises
        ------
        NetworkError
            If codes are not integers in range or do not have one column a server, or ``out`` does not fit; nothing was
            sent.
        ChipHostError
            If there is no answer; its ``outcome`` says whether the request can have run on the chip.
        """
        checked = check_codes(codes, self.servers, self.bits)
        count = len(checked)
        answers = np.empty(count, dtype=np.int64) if out is None else checked_out(out, (count,))
        if count > self.batch_limit:
            raise ChipHostError(
                f"chip host {self._terms.host}: a request of {count} elements is too large; the limit is "
                f"{self.batch_limit}; nothing was sent: send parts of it",
                "not_done",
            )
        if count:
            with self._session() as session:
                call = Call(session, self._terms, self._new_name(), count, codes_to_wire(checked.T, self.bits))
                packed = call.answer(wire_size(1, count, self.bits), self._served)
            answers[...] = codes_from_wire(packed, 1, count, self.bits)[0]
        return answers

    def health(self) -> messages.HostHealth:
        """Ask the host how it is.

        Raises
        ------
        ChipHostError
            If it cannot be reached.
        """

        def ask(session: Session, until: float) -> messages.HostHealth:
            link = session.fresh_link(until)
            link.send(messages.HealthAsked(), until)
            while (received := link.receive(until)) is not None:
                if isinstance(received[0], messages.HostHealth):
                    return received[0]
            raise LinkDownError("the host does not answer")

        return self._asked(ask)

    def close(self) -> None:
        """End the links that are not in use; a later call opens new ones."""
        with self._lock:
            sessions, self._idle = self._idle, []
        for session in sessions:
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_idle", "_lock")}
        return kept | {"_peer": replace(self._peer, token=None)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _idle=[], _lock=threading.Lock())

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """Take a session that nobody uses; after an error its link is closed."""
        with self._lock:
            session = self._idle.pop() if self._idle else Session(self._peer)
        try:
            yield session
        except BaseException:
            session.close()
            raise
        finally:
            with self._lock:
                self._idle.append(session)

    def _asked(self, ask: Callable[[Session, float], Asked]) -> Asked:
        """Return what ``ask(session, until)`` finds, over as many links as it takes."""
        clock = self._terms.clock
        until = clock.now() + min(self._terms.timeout_s, self._terms.reconnect_s)
        with self._session() as session:
            while True:
                try:
                    return ask(session, until)
                except (NoHostError, TurnedAwayError) as error:
                    what = "turned this client away" if isinstance(error, TurnedAwayError) else "cannot be reached"
                    raise ChipHostError(
                        f"chip host {self._terms.host} {what}: {error}; nothing was sent", "not_done"
                    ) from error
                except (LinkDownError, ProtocolError) as error:
                    session.drop(error)

    def _new_name(self) -> str:
        return secrets.token_hex(16) if self._rng is None else self._rng.bytes(16).hex()


def _split(address: str) -> tuple[str, int]:
    name, colon, port = address.rpartition(":")
    if not (colon and name and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise AggregationError(
            f"{address!r} is no address of a chip host; give name and port, such as '127.0.0.1:5600'"
        )
    return name.removeprefix("[").removesuffix("]"), int(port)
