"""Messages between a chip host and its clients: what each may say, and proofs that both know the token."""

import hashlib
import hmac
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from optinc_hw.errors import AggregationError

_LONGEST_TEXT = 2000

Name = Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]
"""128 random bits in hexadecimal: of a request, a session, a host's life, or a nonce."""
Proof = Annotated[str, StringConstraints(pattern="^([0-9a-f]{64})?$")]
"""HMAC-SHA256 in hexadecimal; empty where there is no token."""
Text = Annotated[str, StringConstraints(max_length=_LONGEST_TEXT)]
Count = Annotated[int, Field(ge=0, le=1 << 62)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]

RequestState = Literal["queued", "running", "unknown", "forgotten"]
Failure = Literal["refused", "cancelled", "failed"]


class Message(BaseModel):
    """A message; its fields travel as a JSON object."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    carries_codes: ClassVar[bool] = False


class Greeting(Message):
    """Host, first: which life of the host this is, and a nonce to be signed."""

    instance: Name
    nonce: Name
    token_needed: bool


class Login(Message):
    """Client: a nonce in return, the proof, and the session that this link continues."""

    nonce: Name
    session: Name
    proof: Proof


class Welcome(Message):
    """Host: its own proof, what is served, and how many requests it has accepted so far."""

    proof: Proof
    servers: Annotated[int, Field(ge=1, le=1 << 20)]
    bits: Annotated[int, Field(ge=1, le=16)]
    inputs: Annotated[int, Field(ge=1, le=64)]
    executor: Text
    most_elements: Annotated[int, Field(ge=1)]
    accepted: Count


class Submit(Message):
    """Client: codes (servers, elements) to be answered."""

    carries_codes = True

    request: Name
    elements: Annotated[int, Field(ge=1, le=1 << 40)]


class Ask(Message):
    """Client: what became of a request that was submitted after the host had accepted ``since`` others."""

    request: Name
    since: Count


class Cancel(Message):
    """Client: do not begin this request; its answer will not be asked for."""

    request: Name
    since: Count


class Received(Message):
    """Client: the answer has arrived and need not be kept."""

    request: Name


class HealthAsked(Message):
    """Client: how the host is."""


class State(Message):
    """Host: where a request is, and vectors done of those in all while it runs."""

    request: Name
    state: RequestState
    ahead: Count = 0
    done: Count = 0
    total: Count = 0


class Result(Message):
    """Host: the answers (elements,)."""

    carries_codes = True

    request: Name
    accepted: Count


class Failed(Message):
    """Host: a request that was refused or cancelled, so that nothing of it ran, or that failed while it ran."""

    request: Name
    failure: Failure
    reason: Text


class HostHealth(Message):
    """How a chip host is.

    Parameters
    ----------
    executor
        What answers.
    clients
        Clients that are connected.
    logging_in
        Links beside theirs, whose clients have not logged in.
    waiting, waiting_bytes
        Requests in the queue, and the bytes of their codes.
    running
        First digits of the name of the request that runs; empty if none does.
    elements
        Its elements.
    done, total
        Its vectors through tiles so far and in all, where the executor tells.
    requests_done, requests_failed
        Requests that were answered, and those that failed while they ran.
    busy_s
        Time in s that the executor has worked.
    up_s
        Time in s since the host began.
    """

    executor: Text
    clients: Count
    logging_in: Count
    waiting: Count
    waiting_bytes: Count
    running: Text
    elements: Count
    done: Count
    total: Count
    requests_done: Count
    requests_failed: Count
    busy_s: Seconds
    up_s: Seconds


class Goodbye(Message):
    """Host, last: why it ends the link, and whether to connect again is of use."""

    reason: Text
    again: bool


KINDS: tuple[type[Message], ...] = (
    Greeting, Login, Welcome, Submit, Ask, Cancel, Received, HealthAsked, State, Result, Failed, HostHealth, Goodbye,
)  # fmt: skip
"""All messages; the place of each, counted from 1, is its number on the wire."""


def text(content: str) -> str:
    """Return what a message may hold of a text."""
    return content.encode("utf-8", "replace").decode()[:_LONGEST_TEXT]


def short(name: str) -> str:
    """Return what people see of a request's name, which is too little to ask for its answer."""
    return name[:8]


LEAST_TOKEN = 16


def check_token(token: str) -> str:
    """Return a token that is long enough, in characters.

    Raises
    ------
    AggregationError
        If it is not.
    """
    if len(token) < LEAST_TOKEN:
        raise AggregationError(
            f"the token of the chip host has {len(token)} characters; it must have at least {LEAST_TOKEN}, such as "
            "those of python -c 'import secrets; print(secrets.token_hex(16))'"
        )
    return token


def proof(token: str | None, role: Literal["client", "host"], greeting: Greeting, nonce: str, session: str) -> str:
    """Return the proof that ``role`` knows the token, good for this link only; empty without a token."""
    if token is None:
        return ""
    signed = f"optinc-host {role} {greeting.instance} {greeting.nonce} {nonce} {session}"
    return hmac.new(token.encode("utf-8"), signed.encode("ascii"), hashlib.sha256).hexdigest()


def same(given: str, wanted: str) -> bool:
    """Whether two proofs are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(given, wanted)
