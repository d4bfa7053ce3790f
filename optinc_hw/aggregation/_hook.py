"""DDP communication hook: gradients of a bucket to their mean as the chip gives it."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist

from optinc_hw.aggregation._averager import Gradients
from optinc_hw.aggregation._executor import Executor
from optinc_hw.aggregation._options import OptincOptions
from optinc_hw.aggregation._state import OptincState, Outcome
from optinc_hw.aggregation._vectors import vector_of
from optinc_hw.errors import GradientError


class HookedModule(Protocol):
    """What takes a hook: ``DistributedDataParallel`` or a trainer's wrapper of it."""

    def register_comm_hook(self, state: object, hook: Any) -> None:  # Any: torch's type of a hook
        """Register a communication hook."""

    def named_parameters(self) -> Any:  # Any: torch's iterator of names and parameters
        """Return names and parameters."""


def optinc_hook(
    state: OptincState,
    bucket: dist.GradBucket,  # type: ignore[name-defined] # torch's stubs lack it
) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket through the executor of ``state``: ``model.register_comm_hook(state, optinc_hook)``.

    Parameters
    ----------
    state
        State of this rank.
    bucket
        Gradients of some parameters.

    Returns
    -------
    torch.futures.Future[torch.Tensor]
        The mean over the ranks (not the sum), in the bucket's dtype, with equal bits on all ranks.  With an executor
        that always gives equal answers to equal codes it does not depend on how parameters are grouped in buckets.

    Raises
    ------
    GradientError
        If the gradients are sparse or their dtype is no floating-point one.
    AggregationError
        If ranks are set up differently.  What fails later, while the backward pass goes on, torch raises as a
        RuntimeError that holds the message.

    Notes
    -----
    With ``non_finite="raise"`` a bucket that holds NaN or Inf on any rank becomes NaN, and the step's last bucket
    raises, so that nothing is under way when the backward pass ends; the next step starts afresh.
    """
    buffer, step, last = bucket.buffer(), state.steps, bucket.is_last()
    if last:
        state.steps += 1
    names = [state.names.of(parameter) for parameter in bucket.parameters()]
    if buffer.layout != torch.strided or not buffer.is_floating_point():
        raise GradientError(
            f"the gradient of {' and '.join(names)} has layout {buffer.layout} and dtype {buffer.dtype}; only dense "
            "floating-point gradients can be averaged: make the layer with sparse=False"
        )
    if state.ranks == 1:
        return _done(buffer)
    if not buffer.numel():
        return _served(state, 0, buffer, lambda: None, last=last)
    sizes = [gradient.numel() for gradient in bucket.gradients()]
    return _average(state, buffer, Gradients(vector_of(buffer), names, sizes, step), last=last)


def register_optinc_hook(
    model: HookedModule,
    executor: Executor | None,
    options: OptincOptions | Mapping[str, Any] | None = None,
    *,
    process_group: dist.ProcessGroup | None = None,
) -> OptincState:
    """Register `optinc_hook` with a model and return its state, whose parameters have their names.

    Parameters
    ----------
    model
        ``DistributedDataParallel``, or a wrapper with its ``register_comm_hook`` and ``named_parameters``.
    executor, process_group
        As for `OptincState`.
    options
        Settings, or a mapping of their names.

    Raises
    ------
    GradientError
        If a setting is unknown or out of range.
    """
    chosen = OptincOptions.from_mapping(options) if isinstance(options, Mapping) else options
    state = OptincState(executor, chosen, process_group=process_group, parameters=model.named_parameters())
    model.register_comm_hook(state, optinc_hook)
    return state


def _done(buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=_devices(buffer))
    future.set_result(buffer)
    return future


def _devices(buffer: torch.Tensor) -> list[int | str | torch.device]:
    return [] if buffer.device.type == "cpu" else [buffer.device]


def _average(
    state: OptincState, buffer: torch.Tensor, gradients: Gradients, *, last: bool
) -> torch.futures.Future[torch.Tensor]:
    averager = state.averager
    pending = averager.begin(gradients)
    shared = buffer.device.type == "cpu" and buffer.dtype in (torch.float32, torch.float64)

    def finish() -> None:
        mean = gradients.vector if shared else np.empty_like(gradients.vector)
        averager.finish(pending, mean)
        if not shared:
            buffer.copy_(torch.from_numpy(mean).reshape(buffer.shape))

    return _served(state, pending.lane, buffer, finish, last=last)


def _served(
    state: OptincState, lane: int, buffer: torch.Tensor, finish: Callable[[], None], *, last: bool
) -> torch.futures.Future[torch.Tensor]:
    """Return a future of a bucket that the thread of a lane finishes; torch passes on errors of callbacks only."""
    filled: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=_devices(buffer))
    outcome = Outcome()
    buckets = state.add_bucket(outcome, last=last)

    def serve() -> None:
        broken = None
        try:
            finish()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the backward pass
            broken = error
        if isinstance(broken, GradientError):
            buffer.fill_(torch.nan)
        outcome.set_result(broken)
        filled.set_result(buffer)

    def result(done: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        broken = state.end_step(buckets) if last else outcome.result()
        if broken is not None and (last or not isinstance(broken, GradientError)):
            raise broken
        return done.value()

    if buffer.device.type == "cpu":
        state.workers[lane].submit(serve)
    else:  # copies to a device belong to the stream of the backward pass
        serve()
    return filled.then(result)
