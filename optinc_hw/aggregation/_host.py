"""Chip host: one executor, such as a bench, shared by several jobs and machines."""

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from optinc_hw.aggregation._executor import Executor, Progress
from optinc_hw.aggregation._host_frames import check_wire_size
from optinc_hw.aggregation._host_messages import check_token
from optinc_hw.aggregation._host_queue import HostLimits
from optinc_hw.aggregation._host_service import ReportsProgress, ServedRequest, Service
from optinc_hw.clock import Clock, WallClock
from optinc_hw.errors import AggregationError

_MOST_BITS = 16


class ChipHost:
    """Serves an executor to `RemoteExecutor` in other processes and on other machines while its context is open.

    Requests run one after the other in order of arrival.  A request is done once, or its client gets an error that says
    whether it can have run.  Leaving the context refuses what waits, stops an executor that tells its progress (a
    bench, a twin) before its next slice, lets any other finish, and ends all links and threads.

    Parameters
    ----------
    executor
        What answers: `ExactExecutor`, `TableExecutor`, `TwinExecutor` or `BenchExecutor`.  It runs in a thread of the
        host's; nothing else may use it meanwhile.
    address
        Address to serve on.  Any but the machine's own (loopback) needs a token.
    port
        Port; 0 takes a free one.
    token
        Secret of at least 16 characters that clients must have too.  Both sides prove that they know it; it never
        travels.  Codes and answers are not encrypted: across networks that others can write to, use a tunnel.
    limits
        How much clients may do.
    served
        Called after each request that has run, in a thread of the host's.
    clock
        Time for requests of clients that are away, and for figures.

    Raises
    ------
    AggregationError
        If the token is too short or missing, codes have more than 16 bits, or the largest request does not fit a
        message; on entering, if the address cannot be used.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        limits: HostLimits | None = None,
        served: Callable[[ServedRequest], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if executor.bits > _MOST_BITS:
            raise AggregationError(f"a chip host serves codes of up to {_MOST_BITS} bits, not {executor.bits}")
        if token is not None:
            check_token(token)
        elif not _is_loopback(address):
            raise AggregationError(
                f"other machines could use the chip through {address!r}; give a token, or serve on 127.0.0.1"
            )
        self._executor = executor
        self._where = (address, port)
        self._token = token
        self._limits = HostLimits() if limits is None else limits
        self._served: Callable[[ServedRequest], None] = (lambda _: None) if served is None else served
        self._clock: Clock = WallClock() if clock is None else clock
        check_wire_size(executor.servers, self._limits.elements, executor.bits)
        self._bound: tuple[str, int] | None = None
        self._stack = ExitStack()

    @property
    def address(self) -> str:
        """Address and port, as `RemoteExecutor` takes them; known once the context is open."""
        if self._bound is None:
            raise AggregationError("the chip host does not serve yet; enter its context first")
        name, port = self._bound
        return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"

    def __enter__(self) -> Self:
        service = Service(self._executor, self._token, self._limits, self._clock, self._served)
        listener = _listening(*self._where)
        self._bound = listener.getsockname()[:2]
        with ExitStack() as stack:
            stack.enter_context(listener)
            stack.callback(_watch(self._executor, service.progressed))
            thread = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="optinc-host"))
            started: Future[None] = Future()
            ended = thread.submit(_serve, service, listener, started)
            stack.callback(ended.result)
            stack.callback(service.stop)
            wait([started, ended], return_when=FIRST_COMPLETED)
            if ended.done():
                ended.result()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _serve(service: Service, listener: socket.socket, started: "Future[None]") -> None:
    asyncio.run(service.run(listener, lambda: started.set_result(None)))


def _watch(executor: Executor, progress: Progress) -> Callable[[], None]:
    """Have an executor that tells its progress tell ``progress`` first; returns what undoes it."""
    if not isinstance(executor, ReportsProgress):
        return lambda: None
    watched, former = executor, executor.progress

    def both(done: int, total: int) -> None:
        progress(done, total)
        if former is not None:
            former(done, total)

    def undo() -> None:
        watched.progress = former

    watched.progress = both
    return undo


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name, which can come to mean anything
        return False


def _listening(address: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family)
    except (OSError, OverflowError) as error:
        raise AggregationError(
            f"a chip host cannot serve on port {port} of {address!r} ({error}); choose another port or address"
        ) from error
