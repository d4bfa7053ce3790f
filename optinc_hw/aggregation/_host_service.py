"""What a chip host does in its thread: links, the queue, and the one worker that uses the executor."""

import asyncio
import contextlib
import secrets
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from optinc_hw.aggregation import _host_messages as messages
from optinc_hw.aggregation._executor import Executor, Progress, answer
from optinc_hw.aggregation._host_connection import Connection, IdleError
from optinc_hw.aggregation._host_frames import Bytes, ProtocolError, codes_from_wire, codes_to_wire, wire_size
from optinc_hw.aggregation._host_queue import HostLimits, RefusalError, Request, RequestQueue
from optinc_hw.clock import Clock
from optinc_hw.errors import AggregationError

_LOGIN_S = 10.0
_STRANGERS = 64  # links that may be open without a client who has said who it is


@dataclass(frozen=True)
class ServedRequest:
    """A request that the executor of a chip host has run.

    Parameters
    ----------
    name
        First digits of its random name.
    elements
        Number of elements.
    duration_s
        Time in s that it took.
    failure
        What went wrong; empty if it was answered.
    """

    name: str
    elements: int
    duration_s: float
    failure: str


@runtime_checkable
class ReportsProgress(Protocol):
    """An executor that tells how far it is."""

    progress: Progress | None


class HostClosedError(AggregationError):
    """The chip host is being closed; raised in an executor that tells its progress, so that it stops."""


class Service:
    """Serves an executor; all but `stop` and `progressed` belong to the thread of `run`.

    Parameters
    ----------
    executor, token, limits, clock, served
        See `ChipHost`.
    """

    def __init__(
        self,
        executor: Executor,
        token: str | None,
        limits: HostLimits,
        clock: Clock,
        served: Callable[[ServedRequest], None],
    ) -> None:
        self._executor = executor
        self._token = token
        self._limits = limits
        self._clock = clock
        self._served = served
        self._queue = RequestQueue(limits, clock)
        self._instance = secrets.token_hex(16)
        self._links: dict[Connection, asyncio.Task[None]] = {}
        self._sessions: dict[str, Connection] = {}
        self._strangers: dict[Connection, None] = {}  # links that are no client's, the oldest one first
        self._running: Request | None = None
        self._counts = {"done": 0, "failed": 0}
        self._busy_s = 0.0
        self._began = clock.now()
        self._stopping = threading.Event()
        self._wake = asyncio.Event()
        self._stopped = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._payload_limit = wire_size(executor.servers, limits.elements, executor.bits)

    def stop(self) -> None:
        """Begin to end `run`, or see to it that it ends as soon as it begins."""
        self._stopping.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._stopped.set)

    async def run(self, listener: socket.socket, started: Callable[[], None]) -> None:
        """Serve on a listening socket until `stop`."""
        self._loop = asyncio.get_running_loop()
        if self._stopping.is_set():
            return
        server = await asyncio.start_server(self._connected, sock=listener)
        worker = asyncio.create_task(self._work())
        worker.add_done_callback(lambda _: self._stopped.set())  # it ends by itself only by an error of ours
        started()
        try:
            await self._stopped.wait()
        finally:
            server.close()
            for request in self._queue.close():
                self._tell(request)
            self._wake.set()
            try:
                await worker
            finally:
                await self._dismiss()

    def progressed(self, done: int, total: int) -> None:
        """Take progress from the executor, in the worker's thread.

        Raises
        ------
        HostClosedError
            If the executor is to stop.
        """
        request, loop = self._running, self._loop
        if self._stopping.is_set():
            raise HostClosedError("the chip host was closed while it ran")
        if request is not None and loop is not None and total > 0:
            first = request.total == 0
            coarse = 100 * done // total > 100 * request.done // total
            request.done, request.total = done, total
            if first or coarse:
                loop.call_soon_threadsafe(self._tell, request)

    # -- links --

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Connection(reader, writer, self._limits.idle_s)
        task = asyncio.current_task()
        assert task is not None  # start_server makes one for each link
        self._links[link] = task
        self._receive_stranger(link)
        try:
            await self._converse(link)
        except asyncio.CancelledError:
            await link.close("the chip host was closed", again=True, linger=False)
        finally:
            self._left(link)
            link.abort()
            self._strangers.pop(link, None)
            del self._links[link]

    async def _converse(self, link: Connection) -> None:
        """Serve a link until it ends."""
        try:
            if not await self._log_in(link):
                return
            while not link.ended:
                message, payload = await link.receive(self._payload_limit)
                if link.ended:  # its client has come back on another one
                    return
                self._take(link, message, payload)
        except ProtocolError as error:
            await link.close(str(error))
        except IdleError as error:
            await link.close(str(error), again=True)
        except (OSError, EOFError):
            await link.close()

    async def _log_in(self, link: Connection) -> bool:
        """Find out who the client is; returns whether it may stay."""
        greeting = messages.Greeting(
            instance=self._instance, nonce=secrets.token_hex(16), token_needed=self._token is not None
        )
        link.send(greeting)
        login = await self._login(link)
        if link.ended:  # newer ones have taken its place
            return False
        wanted = messages.proof(self._token, "client", greeting, login.nonce, login.session)
        if not messages.same(login.proof, wanted):
            await link.close("the token is not that of this chip host" if wanted else "this chip host has no token")
            return False
        former = self._sessions.pop(login.session, None)
        if former is not None:  # what it had sent must not arrive after what it sends now
            former.abort()
            self._left(former)
        if len(self._sessions) >= self._limits.clients:
            full = f"{self._limits.clients} clients are connected, which is the chip host's limit; try again later"
            await link.close(full, again=True, linger=False)
            return False
        del self._strangers[link]
        link.session = login.session
        self._sessions[login.session] = link
        link.send(
            messages.Welcome(
                proof=messages.proof(self._token, "host", greeting, login.nonce, login.session),
                servers=self._executor.servers,
                bits=self._executor.bits,
                inputs=self._executor.inputs,
                executor=type(self._executor).__name__,
                most_elements=self._limits.elements,
                accepted=self._queue.accepted,
            )
        )
        return True

    async def _login(self, link: Connection) -> messages.Login:
        try:
            async with asyncio.timeout(_LOGIN_S):
                login, _ = await link.receive(0)
        except TimeoutError as error:
            raise IdleError(f"no login for {_LOGIN_S:g} s") from error
        if not isinstance(login, messages.Login):
            raise ProtocolError(f"the first message must be Login, not {type(login).__name__}")
        return login

    def _receive_stranger(self, link: Connection) -> None:
        """Take a link whose client is not known yet; the oldest such link goes if there are too many."""
        self._strangers[link] = None
        if len(self._strangers) > _STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.turn_away(
                f"{_STRANGERS} newer links wait for their login, which is the chip host's limit; somebody opens links "
                "without logging in: try again, and let only the jobs' machines reach this port"
            )

    def _left(self, link: Connection) -> None:
        link.ended = True
        self._queue.leave(link)
        if self._sessions.get(link.session) is link:
            del self._sessions[link.session]

    async def _dismiss(self) -> None:
        """End all links."""
        links = dict(self._links)
        for link, task in links.items():
            if link.ended:  # it has said its goodbye
                link.abort()
            else:
                task.cancel()
        await asyncio.gather(*links.values(), return_exceptions=True)

    # -- requests --

    def _take(self, link: Connection, message: messages.Message, payload: memoryview) -> None:
        """Do what a client wants."""
        match message:
            case messages.Submit():
                self._submit(link, message, payload)
            case messages.Ask():
                self._answer(link, message.request, self._queue.ask(message.request, message.since, link))
            case messages.Cancel():
                self._answer(link, message.request, self._queue.cancel(message.request, message.since, link))
            case messages.Received():
                self._queue.confirm(message.request)
            case messages.HealthAsked():
                link.send(self._health())
            case _:
                raise ProtocolError(f"a client must not send {type(message).__name__}")
        self._wake.set()  # the next request may be one whose client has come back

    def _submit(self, link: Connection, message: messages.Submit, payload: memoryview) -> None:
        wanted = wire_size(self._executor.servers, message.elements, self._executor.bits)
        if len(payload) != wanted:
            raise ProtocolError(f"{message.elements} elements take {wanted} bytes, but {len(payload)} came with them")
        try:
            request = self._queue.submit(message.request, message.elements, payload, link)
        except RefusalError as error:
            link.send(messages.Failed(request=message.request, failure="refused", reason=messages.text(str(error))))
        else:
            self._tell(request)

    def _answer(self, link: Connection, name: str, found: Request | Literal["unknown", "forgotten"]) -> None:
        if isinstance(found, Request):
            self._tell(found)
        else:
            link.send(messages.State(request=name, state=found))

    def _tell(self, request: Request) -> None:
        """Tell a request's client how it stands, or the answer."""
        link, name = request.client, request.name
        if not isinstance(link, Connection):
            return
        if request.failure is not None:
            reason = messages.text(request.reason)
            link.send(messages.Failed(request=name, failure=request.failure, reason=reason))
        elif request.phase == "finished":
            link.send(messages.Result(request=name, accepted=self._queue.accepted), request.answer)
        else:
            ahead = self._queue.ahead(request)
            link.send(
                messages.State(request=name, state=request.phase, ahead=ahead, done=request.done, total=request.total)
            )

    def _health(self) -> messages.HostHealth:
        now, running = self._clock.now(), self._running
        return messages.HostHealth(
            executor=type(self._executor).__name__,
            clients=len(self._sessions),
            logging_in=len(self._strangers),
            waiting=len(self._queue.waiting),
            waiting_bytes=self._queue.waiting_bytes,
            running="" if running is None else messages.short(running.name),
            elements=0 if running is None else running.elements,
            done=0 if running is None else running.done,
            total=0 if running is None else running.total,
            requests_done=self._counts["done"],
            requests_failed=self._counts["failed"],
            busy_s=self._busy_s,
            up_s=now - self._began,
        )

    async def _work(self) -> None:
        """Run the requests one after the other, until the queue is closed."""
        with ThreadPoolExecutor(1, thread_name_prefix="optinc-host-chip") as chip:
            while True:
                request = self._queue.begin()
                if request is not None:
                    await self._run(request, chip)
                elif self._queue.closed:
                    return
                else:
                    self._wake.clear()
                    await self._wake.wait()

    async def _run(self, request: Request, chip: ThreadPoolExecutor) -> None:
        self._running = request
        self._tell(request)
        began = self._clock.now()
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(chip, self._execute, request.elements, request.payload)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must know
            self._queue.end(request, "failed", f"{type(error).__name__}: {error}")
        else:
            self._queue.finish(request, answer)
        self._running = None
        took = self._clock.now() - began
        self._busy_s += took
        self._counts["done" if request.failure is None else "failed"] += 1
        if not request.renounced:
            self._tell(request)
        with contextlib.suppress(OSError):  # such as a terminal that is gone
            self._served(ServedRequest(messages.short(request.name), request.elements, took, request.reason))

    def _execute(self, elements: int, payload: Bytes) -> Bytes:
        """Answer packed codes, in the worker's thread."""
        executor = self._executor
        codes = codes_from_wire(payload, executor.servers, elements, executor.bits)
        answers = np.empty(elements, dtype=codes.dtype)
        step = executor.batch_limit or elements
        for start in range(0, elements, step):
            piece = slice(start, start + step)
            answer(executor, codes[:, piece].T, answers[piece])
        return codes_to_wire(answers[None], executor.bits)
