"""One request to a chip host, from the submission to the answer, over as many links as it takes."""

from dataclasses import dataclass

from optinc_hw.aggregation import _host_messages as messages
from optinc_hw.aggregation._executor import Progress
from optinc_hw.aggregation._host_errors import ChipHostError, Outcome
from optinc_hw.aggregation._host_frames import Bytes, ProtocolError
from optinc_hw.aggregation._remote_link import Link, LinkDownError, NoHostError, Session, TurnedAwayError
from optinc_hw.clock import Clock

_ASK_S = 5.0
_SILENCES = 3  # questions without an answer after which a link is given up
_CANCEL_SHARE = 0.1
_CANCEL_S = 5.0


@dataclass(frozen=True)
class Terms:
    """How a request may go about it.

    Parameters
    ----------
    host
        The host, for messages.
    timeout_s
        Longest time in s from the call to its answer or error.
    reconnect_s
        Longest time in s without a host.
    clock
        The time.
    progress
        Called with (vectors done, vectors in all).
    """

    host: str
    timeout_s: float
    reconnect_s: float
    clock: Clock
    progress: Progress | None


@dataclass(frozen=True)
class _Handed:
    """That a request was, or may have been, handed to one life of the host."""

    instance: str
    since: int


class Call:
    """A request that is submitted once.

    Parameters
    ----------
    session
        The session to use.
    terms
        How long, and whom to tell.
    request
        Its name, 128 random bits in hexadecimal.
    elements
        Number of elements.
    payload
        Their codes.
    """

    def __init__(self, session: Session, terms: Terms, request: str, elements: int, payload: Bytes) -> None:
        self._session = session
        self._terms = terms
        self._request = request
        self._elements = elements
        self._payload = payload
        self._handed: _Handed | None = None
        self._heard = terms.clock.now()
        self._deadline = self._heard + terms.timeout_s
        self._stop = self._deadline - min(_CANCEL_S, _CANCEL_SHARE * terms.timeout_s)

    def answer(self, answer_size: int, served: messages.Welcome) -> memoryview:
        """Return the answers' bytes.

        Parameters
        ----------
        answer_size
            Their number.
        served
            What the host must serve.

        Raises
        ------
        ChipHostError
            If there is no answer in time, or none at all.
        """
        session = self._session
        while True:
            give_up = min(self._stop, self._heard + self._terms.reconnect_s)
            try:
                link = session.fresh_link(give_up) if self._handed is None else session.link(give_up)
                link.payload_limit = answer_size
                self._check(link, served)
                self._hand_over(link)
                return self._wait(link, answer_size)
            except TurnedAwayError as error:
                raise self._error(
                    "not_done" if self._handed is None else "unknown", f"it was turned away: {error}"
                ) from error
            except NoHostError as error:
                raise self._lost(error) from error
            except (LinkDownError, ProtocolError) as error:
                session.drop(error)

    def _check(self, link: Link, served: messages.Welcome) -> None:
        handed = self._handed
        if handed is not None and link.instance != handed.instance:
            raise self._error(
                "unknown",
                "the chip host was restarted after it was submitted: it may or may not have run on the chip, and its "
                "answer is lost",
            )
        if network(link.welcome) != network(served):
            raise self._error(
                "not_done",
                f"the chip host now serves {network(link.welcome)}, no longer {network(served)}; make a new "
                "RemoteExecutor",
            )

    def _hand_over(self, link: Link) -> None:
        """Submit the request, or ask for it if it was submitted before."""
        if self._handed is None:
            self._handed = _Handed(link.instance, link.accepted)  # before it is sent: a part of it may arrive
            submit = messages.Submit(request=self._request, elements=self._elements)
            link.send(submit, self._stop, self._payload)
        else:
            link.send(messages.Ask(request=self._request, since=self._handed.since), self._stop)

    def _wait(self, link: Link, answer_size: int) -> memoryview:
        """Return the answer that comes over a link."""
        clock = self._terms.clock
        every = min(_ASK_S, self._terms.timeout_s / 8.0)
        questions, ask_at = 0, clock.now() + every
        while True:
            received = link.receive(min(self._stop, ask_at))
            if received is not None:
                questions, ask_at = 0, clock.now() + every
                self._note()
                found = self._taken(link, *received, answer_size)
                if found is not None:
                    return found
            elif clock.now() >= self._stop:
                return self._give_up(link, answer_size)
            elif questions == _SILENCES:
                raise LinkDownError(f"the host does not answer for {every * (_SILENCES + 1):.3g} s")
            else:
                questions, ask_at = questions + 1, clock.now() + every
                self._hand_over(link)

    def _taken(self, link: Link, message: messages.Message, payload: memoryview, answer_size: int) -> memoryview | None:
        """Take a message; returns the answer if this is it."""
        if getattr(message, "request", None) != self._request:
            return None  # about a request of this session that was given up
        match message:
            case messages.State(state="unknown"):
                self._handed = None
                self._hand_over(link)
            case messages.State(state="forgotten"):
                raise self._error("unknown", "the host does not keep its answer any more: it may have run on the chip")
            case messages.State() if self._terms.progress is not None and message.total:
                self._terms.progress(message.done, message.total)
            case messages.Failed():
                raise self._failed(link, message)
            case messages.Result():
                if len(payload) != answer_size:
                    raise LinkDownError(f"the host sent {len(payload)} bytes in place of {answer_size}")
                link.accepted = message.accepted
                self._confirm(link)
                return payload
        return None

    def _give_up(self, link: Link, answer_size: int) -> memoryview:
        """Cancel the request as its time is up; returns the answer if it is there already."""
        timeout = f"no answer within {self._terms.timeout_s:g} s"
        assert self._handed is not None  # else there would be nothing to wait for
        link.send(messages.Cancel(request=self._request, since=self._handed.since), self._deadline)
        while (received := link.receive(self._deadline)) is not None:
            match received[0]:
                case messages.State(request=self._request, state="unknown"):
                    raise self._error("not_done", f"{timeout}; it had not arrived")
                case messages.State(request=self._request, state="running"):
                    break
                case messages.Failed(request=self._request, failure="cancelled"):
                    raise self._error("not_done", f"{timeout}; it was still in the queue and is cancelled")
                case messages.Result() | messages.Failed():
                    found = self._taken(link, *received, answer_size)
                    if found is not None:
                        return found
        raise self._error(
            "unknown", f"{timeout}; it runs or has run on the chip, and its answer is dropped: allow more time"
        )

    def _failed(self, link: Link, message: messages.Failed) -> ChipHostError:
        self._confirm(link)
        if message.failure == "failed":
            return self._error("failed", f"the executor failed: {message.reason}")
        return self._error("not_done", message.reason)

    def _confirm(self, link: Link) -> None:
        """Tell the host that it need not keep the answer; without that it keeps it as long as it can."""
        try:
            link.send(messages.Received(request=self._request), self._deadline)
        except LinkDownError as error:
            self._session.drop(error)

    def _note(self) -> None:
        self._heard = self._terms.clock.now()
        self._session.heard()

    def _lost(self, cause: Exception) -> ChipHostError:
        """Return the error of a host that is gone."""
        if self._handed is None:
            return self._error("not_done", f"the chip host cannot be reached ({cause}); see whether it runs")
        return self._error(
            "unknown",
            f"the chip host was lost and not found again ({cause}): it may or may not have run on the chip; see "
            "whether the host runs",
        )

    def _error(self, outcome: Outcome, what: str) -> ChipHostError:
        done = {
            "not_done": "nothing of it was done, and it can be sent again",
            "failed": "part of it may have run on the chip",
            "unknown": "start the job again from its last checkpoint",
        }[outcome]
        name = messages.short(self._request)
        return ChipHostError(f"chip host {self._terms.host}, request {name}: {what}; {done}", outcome)


def network(served: messages.Welcome) -> str:
    """Return what a host serves, in words."""
    return f"{served.executor} for {served.servers} servers, {served.bits} bits and {served.inputs} inputs"
