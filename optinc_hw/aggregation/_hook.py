"""DDP communication hook: gradients of a bucket to their mean as the chip gives it."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist

from optinc_hw.aggregation._averager import Gradients
from optinc_hw.aggregation._executor import Executor
from optinc_hw.aggregation._options import OptincOptions
from optinc_hw.aggregation._state import OptincState
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
    """
    buffer, step = bucket.buffer(), state.steps
    if bucket.is_last():
        state.steps += 1
    names = [state.names.of(parameter) for parameter in bucket.parameters()]
    if buffer.layout != torch.strided or not buffer.is_floating_point():
        raise GradientError(
            f"the gradient of {' and '.join(names)} has layout {buffer.layout} and dtype {buffer.dtype}; only dense "
            "floating-point gradients can be averaged: make the layer with sparse=False"
        )
    if state.ranks == 1 or not buffer.numel():
        return _done(buffer)
    if step < state.options.warmup_steps:
        buffer.div_(state.ranks)
        work = dist.all_reduce(buffer, group=state.process_group, async_op=True)
        averaged: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda future: future.value()[0])
        return averaged
    sizes = [gradient.numel() for gradient in bucket.gradients()]
    return _average(state, buffer, Gradients(vector_of(buffer), names, sizes, step))


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


def _average(state: OptincState, buffer: torch.Tensor, gradients: Gradients) -> torch.futures.Future[torch.Tensor]:
    averager = state.averager
    pending = averager.begin(gradients)
    shared = buffer.device.type == "cpu" and buffer.dtype in (torch.float32, torch.float64)

    def finish() -> torch.Tensor:
        mean = gradients.vector if shared else np.empty_like(gradients.vector)
        averager.finish(pending, mean)
        if not shared:
            buffer.copy_(torch.from_numpy(mean).reshape(buffer.shape))
        return buffer

    if buffer.device.type != "cpu":  # copies to a device belong to the stream of the backward pass
        finish()
        return _done(buffer)
    return _served(state.workers[pending.lane], finish)


def _served(worker: ThreadPoolExecutor, finish: Callable[[], torch.Tensor]) -> torch.futures.Future[torch.Tensor]:
    """Return a future of what a thread does; torch passes on errors of callbacks only."""
    future: torch.futures.Future[Any] = torch.futures.Future()

    def serve() -> None:
        found: torch.Tensor | Exception
        try:
            found = finish()
        except Exception as error:  # noqa: BLE001 - raised again in the thread of the backward pass
            found = error
        future.set_result(found)

    def result(done: torch.futures.Future[Any]) -> torch.Tensor:
        found: torch.Tensor | Exception = done.value()
        if isinstance(found, Exception):
            raise found
        return found

    worker.submit(serve)
    return future.then(result)
