"""Requests of a chip host: who waits, what is kept, and what is known of a request that somebody asks for."""

import math
from dataclasses import dataclass, fields
from typing import Literal

from optinc_hw.aggregation._host_frames import Bytes
from optinc_hw.aggregation._host_messages import Failure
from optinc_hw.clock import Clock
from optinc_hw.errors import AggregationError


@dataclass(frozen=True)
class HostLimits:
    """What a chip host allows.

    Parameters
    ----------
    clients
        Links at a time.  A job whose ranks each have an executor needs one or two a rank.
    waiting, waiting_bytes
        Requests in the queue, and bytes of their codes; an empty queue takes one of any size that `elements` allows.
    elements
        Elements of one request.
    kept, kept_bytes
        Requests, and bytes of their answers, that are kept for clients that have not confirmed them.
    idle_s
        Time in s without a message after which a link is closed; its client opens a new one when it needs it.
    return_s
        Time in s after which a request in the queue is cancelled if its client is not there.

    Raises
    ------
    AggregationError
        If a limit is not positive.
    """

    clients: int = 16
    waiting: int = 32
    waiting_bytes: int = 1 << 28
    elements: int = 1 << 22
    kept: int = 256
    kept_bytes: int = 1 << 28
    idle_s: float = 60.0
    return_s: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value < math.inf or (field.type is int and not isinstance(value, int)):
                raise AggregationError(f"the chip host's limit {field.name} must be positive, got {value!r}")


class RefusalError(AggregationError):
    """A request that is not accepted; nothing of it runs."""


@dataclass(eq=False)
class Request:
    """A request and what became of it.

    Parameters
    ----------
    name
        The client's random name for it.
    number
        How many requests had been accepted with it.
    elements
        Number of elements.
    payload
        Its codes, as in the frame; empty once it has run.
    client
        Link that waits for it; None while its client is away.
    left_at
        When its client was last seen to leave, in s of the host's clock.
    phase
        Where it is.
    done, total
        Vectors done and in all, where the executor tells.
    answer
        The answers, as in a frame.
    failure, reason
        Why there is no answer.
    renounced
        Whether its client does not want the answer any more.
    """

    name: str
    number: int
    elements: int
    payload: Bytes
    client: object | None
    left_at: float = 0.0
    phase: Literal["queued", "running", "finished"] = "queued"
    done: int = 0
    total: int = 0
    answer: Bytes = b""
    failure: Failure | None = None
    reason: str = ""
    renounced: bool = False


class RequestQueue:
    """Requests in order of arrival.

    A request is named by its client, and one name is accepted once.  What a client has confirmed is dropped.  What it
    has not is kept within the limits; the numbers up to which requests had to be dropped unconfirmed tell later whether
    a name that is not known can have been accepted.

    Parameters
    ----------
    limits
        How much waits and is kept.
    clock
        Time for clients that are away.
    """

    def __init__(self, limits: HostLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._requests: dict[str, Request] = {}
        self._forgotten = 0
        self.accepted = 0
        self.closed = False

    @property
    def waiting(self) -> list[Request]:
        """Requests that have not begun, the first one first."""
        self._cancel_abandoned()
        return self._in("queued")

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the codes of requests that have not begun."""
        return sum(len(request.payload) for request in self.waiting)

    def submit(self, name: str, elements: int, payload: Bytes, client: object) -> Request:
        """Accept a request, or return the one of this name that was accepted before.

        Raises
        ------
        RefusalError
            If the queue is full or closed.
        """
        known = self._requests.get(name)
        if known is not None:
            known.client = client
            return known
        if self.closed:
            raise RefusalError("the chip host is being closed")
        if len(self.waiting) >= self._limits.waiting:
            raise RefusalError(
                f"{self._limits.waiting} requests wait already, which is the chip host's limit; try again later"
            )
        waiting = self.waiting_bytes
        if waiting and waiting + len(payload) > self._limits.waiting_bytes:
            raise RefusalError(
                f"{waiting} bytes of codes wait already and this request has {len(payload)}; the chip host's limit is "
                f"{self._limits.waiting_bytes} bytes: try again later, or send smaller requests"
            )
        self.accepted += 1
        request = Request(name, self.accepted, elements, payload, client)
        self._requests[name] = request
        return request

    def ask(self, name: str, since: int, client: object) -> Request | Literal["unknown", "forgotten"]:
        """Return a request, which ``client`` waits for from now on.

        ``"unknown"``: it was never accepted.  ``"forgotten"``: it may have been, but its answer is not kept any more.
        ``since`` is a number of accepted requests from before it was submitted.
        """
        self._cancel_abandoned()
        known = self._requests.get(name)
        if known is not None:
            known.client = client
            return known
        return "unknown" if self._forgotten <= since else "forgotten"

    def cancel(self, name: str, since: int, client: object) -> Request | Literal["unknown", "forgotten"]:
        """Take a request out of the queue, or see to it that its answer is not kept; returns as `ask`."""
        known = self.ask(name, since, client)
        if isinstance(known, Request):
            if known.phase == "queued":
                known.renounced = True
                self.end(known, "cancelled", "its client cancelled it before it began")
            elif known.phase == "running":
                known.renounced = True
        return known

    def confirm(self, name: str) -> None:
        """Drop a finished request whose answer has arrived."""
        known = self._requests.get(name)
        if known is not None and known.phase == "finished":
            del self._requests[name]

    def leave(self, client: object) -> None:
        """Take note that a client is not there any more."""
        for request in self._requests.values():
            if request.client is client:
                request.client = None
                request.left_at = self._clock.now()

    def begin(self) -> Request | None:
        """Return the first request whose client is there, running from now on; None if there is none."""
        for request in self.waiting:
            if request.client is not None:
                request.phase = "running"
                return request
        return None

    def ahead(self, request: Request) -> int:
        """Return how many requests run before this one as things are."""
        return sum(
            other.phase == "running" or (other.phase == "queued" and other.number < request.number)
            for other in self._requests.values()
            if other is not request
        )

    def finish(self, request: Request, answer: Bytes) -> None:
        """Keep the answer of a request."""
        request.answer = answer
        self._finished(request)

    def end(self, request: Request, failure: Failure, reason: str) -> None:
        """Keep why there is no answer."""
        request.failure, request.reason = failure, reason
        self._finished(request)

    def close(self) -> list[Request]:
        """Accept nothing more; returns the requests that had not begun, which are refused."""
        self.closed = True
        waiting = self.waiting
        for request in waiting:
            self.end(request, "refused", "the chip host was closed before it began")
        return waiting

    def _in(self, phase: str) -> list[Request]:
        return [request for request in self._requests.values() if request.phase == phase]

    def _cancel_abandoned(self) -> None:
        """Cancel requests whose clients have not come back in time."""
        for request in self._in("queued"):
            away = self._clock.now() - request.left_at
            if request.client is None and away > self._limits.return_s:
                self.end(
                    request,
                    "cancelled",
                    f"its client was away for {away:.0f} s while it waited in the queue; the limit is "
                    f"{self._limits.return_s:g} s",
                )

    def _finished(self, request: Request) -> None:
        request.phase = "finished"
        request.payload = b""
        del self._requests[request.name]
        if request.renounced:
            return
        self._requests[request.name] = request  # finished ones in the order in which they finished
        kept = self._in("finished")
        size = sum(len(one.answer) for one in kept)
        while len(kept) > 1 and (len(kept) > self._limits.kept or size > self._limits.kept_bytes):
            dropped = kept.pop(0)
            size -= len(dropped.answer)
            self._forgotten = max(self._forgotten, dropped.number)
            del self._requests[dropped.name]
