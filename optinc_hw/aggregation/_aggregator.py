"""Aggregator: N gradient tensors to their mean as the chip gives it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from optinc_hw.aggregation._executor import Executor, answer
from optinc_hw.aggregation._quantizer import BlockQuantizer, Codes, Floats
from optinc_hw.aggregation._vectors import vector_of
from optinc_hw.errors import GradientError, NetworkError

_FLOAT_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _check_tensor(tensor: object, what: str) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise GradientError(f"{what} is {type(tensor).__name__}, not a torch tensor")
    if tensor.layout != torch.strided:
        raise GradientError(f"{what} has layout {tensor.layout}; only dense gradients can be averaged, use to_dense()")
    if tensor.dtype not in _FLOAT_TYPES:
        raise GradientError(f"{what} has dtype {tensor.dtype}; use float16, bfloat16, float32 or float64")
    return tensor


def _check_equal(tensor: torch.Tensor, first: torch.Tensor, what: str, other: str) -> None:
    for attribute in ("shape", "dtype", "device"):
        mine, theirs = getattr(tensor, attribute), getattr(first, attribute)
        if mine != theirs:
            raise GradientError(f"{what} has {attribute} {mine}, {other} has {theirs}; all workers' must be equal")


class Aggregator:
    """Averages the gradients of N workers through an executor.

    Parameters
    ----------
    executor
        Answers codes with the code of their mean.
    quantizer
        Turns gradients into codes; default ``BlockQuantizer(bits=executor.bits)``.
    error_feedback
        Keep each worker's quantisation error and add it to its next gradient.  It matters at few bits or with one scale
        for very many values, hardly at 8 bits with blocks of 256.  It does not undo the rounding of the mean itself.

    Raises
    ------
    NetworkError
        If quantiser and executor differ in bits.

    Notes
    -----
    Half-precision gradients are quantised in float32 and the mean rounded back; nothing is summed in half
    precision, so large and small values neither overflow nor vanish.  The result is the mean, not the sum.
    """

    def __init__(
        self, executor: Executor, quantizer: BlockQuantizer | None = None, error_feedback: bool = False
    ) -> None:
        chosen = BlockQuantizer(bits=executor.bits) if quantizer is None else quantizer
        if chosen.bits != executor.bits:
            raise NetworkError(f"the quantiser makes {chosen.bits}-bit codes, the executor takes {executor.bits} bits")
        self.executor = executor
        self.quantizer = chosen
        self.error_feedback = error_feedback
        self._residuals: dict[str, Floats] = {}

    def mean(self, tensors: Sequence[torch.Tensor], key: str = "") -> torch.Tensor:
        """Average one gradient tensor of each worker.

        Parameters
        ----------
        tensors
            One tensor a worker, equal in shape, dtype and device; never changed.
        key
            Names this tensor for error feedback where one aggregator averages several.

        Returns
        -------
        torch.Tensor
            The mean, contiguous, with the shape, dtype and device of the inputs.  Within one quantisation step of the
            true mean if the executor is exact; see `BlockQuantizer`.

        Raises
        ------
        GradientError
            Before anything is sent: a wrong number of tensors, other types than dense floating-point tensors, unequal
            tensors, NaN or inf (the message names worker and element), or a shape that changed under error feedback.
        """
        first = self._check_workers(tensors)
        vectors = [vector_of(tensor) for tensor in tensors]
        mean = self._mean(vectors, key, lambda element: f"element {element}")
        return torch.from_numpy(mean).to(first.dtype).reshape(first.shape).to(first.device)

    def mean_lists(self, workers: Sequence[Sequence[torch.Tensor]], key: str = "") -> list[torch.Tensor]:
        """Average several gradient tensors of each worker, sent as one vector.

        Parameters
        ----------
        workers
            For each worker the same list of tensors; dtypes may differ within a list.
        key
            Names this list for error feedback.

        Returns
        -------
        list[torch.Tensor]
            One mean for each tensor of a list, as `mean` returns it.  Blocks run across the borders of tensors.

        Raises
        ------
        GradientError
            As `mean`, the message naming worker and tensor.
        """
        self._check_count(len(workers))
        lengths = {len(tensors) for tensors in workers}
        if len(lengths) != 1:
            raise GradientError(f"the workers' lists have {sorted(lengths)} tensors; all must have the same number")
        columns = list(zip(*workers, strict=True))
        firsts = [self._check_workers(column, f" (tensor {index})") for index, column in enumerate(columns)]
        if not firsts:
            return []
        wide = np.float64 if any(tensor.dtype == torch.float64 for tensor in firsts) else np.float32
        vectors: list[Floats] = [
            np.concatenate([vector_of(tensor) for tensor in tensors], dtype=wide) for tensors in workers
        ]
        ends = np.cumsum([tensor.numel() for tensor in firsts])

        def describe(element: int) -> str:
            index = int(np.searchsorted(ends, element, side="right"))
            return f"tensor {index}, element {element - int(ends[index]) + firsts[index].numel()}"

        pieces = np.split(self._mean(vectors, key, describe), ends[:-1])
        return [
            torch.from_numpy(piece).to(tensor.dtype, copy=True).reshape(tensor.shape).to(tensor.device)
            for piece, tensor in zip(pieces, firsts, strict=True)
        ]

    def encode(self, tensors: Sequence[torch.Tensor]) -> Codes:
        """Return the codes (elements, workers) that `mean` would send for these tensors, without error feedback.

        For running samples of real gradients through another executor.

        Raises
        ------
        GradientError
            As `mean`.
        """
        self._check_workers(tensors)
        vectors = [vector_of(tensor) for tensor in tensors]
        maxima = self._shared_maxima(vectors, lambda element: f"element {element}")
        return self.quantizer.quantise(np.stack(vectors), maxima).T

    def state_dict(self) -> dict[str, Any]:
        """Return the residuals of error feedback as tensors, by key, for a checkpoint (copies)."""
        return {
            "residuals": {
                key: [torch.from_numpy(vector.copy()) for vector in vectors] for key, vectors in self._residuals.items()
            }
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave.

        Raises
        ------
        GradientError
            If the state has other keys, a wrong number of workers, or tensors that are unequal or not finite; nothing
            is changed then.
        """
        if set(state) != {"residuals"} or not isinstance(state["residuals"], Mapping):
            raise GradientError(f"aggregator state has keys {sorted(state)}; expected 'residuals' with a mapping")
        if state["residuals"] and not self.error_feedback:
            raise GradientError("the state holds residuals but error_feedback is off; switch it on to load them")
        loaded: dict[str, Floats] = {}
        for key, tensors in state["residuals"].items():
            self._check_workers(tensors, f" (residual {key!r})")
            loaded[key] = np.stack([vector_of(tensor) for tensor in tensors])
            if not np.isfinite(loaded[key]).all():
                raise GradientError(f"residual {key!r} holds NaN or inf; the checkpoint is damaged")
        self._residuals = loaded

    def _check_count(self, count: int) -> None:
        if count != self.executor.servers:
            raise GradientError(
                f"{count} workers' gradients given; the executor averages {self.executor.servers} servers"
            )

    def _check_workers(self, tensors: Sequence[torch.Tensor], where: str = "") -> torch.Tensor:
        """Check one tensor a worker; returns the first."""
        self._check_count(len(tensors))
        first = _check_tensor(tensors[0], f"the gradient of worker 0{where}")
        for worker, tensor in enumerate(tensors):
            what = f"the gradient of worker {worker}{where}"
            _check_equal(_check_tensor(tensor, what), first, what, "worker 0's")
        if first.is_meta:
            raise GradientError(f"the gradients{where} are on device meta and have no values; give tensors with data")
        return first

    def _shared_maxima(self, vectors: Sequence[Floats], describe: Callable[[int], str]) -> Floats:
        """Largest block maxima of all workers; raises GradientError for NaN or inf."""
        shared: Floats | None = None
        for worker, vector in enumerate(vectors):
            maxima = self.quantizer.block_maxima(vector)
            if not np.isfinite(maxima).all():
                element = int(np.argmin(np.isfinite(vector)))
                raise GradientError(
                    f"the gradient of worker {worker} is {vector[element]} at {describe(element)}; nothing was sent: "
                    "skip this step or lower the loss scale"
                )
            shared = maxima if shared is None else np.maximum(shared, maxima, out=shared)
        if shared is None:
            raise GradientError("no gradients given")
        return shared

    def _mean(self, vectors: list[Floats], key: str, describe: Callable[[int], str]) -> Floats:
        """Mean (size,) of the workers' vectors; residuals change only once the executor has answered."""
        if self.error_feedback:
            vectors = self._corrected(vectors, key)
        maxima = self._shared_maxima(vectors, describe)
        mean = np.empty_like(vectors[0])
        residuals = np.empty((len(vectors) if self.error_feedback else 0, len(mean)), dtype=mean.dtype)
        for places, blocks in self._segments(len(mean)):
            parts = np.stack([vector[places] for vector in vectors])
            codes = self.quantizer.quantise(parts, maxima[blocks])
            answers = np.empty(codes.shape[1], dtype=np.int64)
            answer(self.executor, codes.T, answers)
            mean[places] = self.quantizer.dequantise(answers, maxima[blocks])
            if self.error_feedback:
                residuals[:, places] = parts - self.quantizer.dequantise(codes, maxima[blocks])
        if self.error_feedback:
            self._residuals[key] = residuals
        return mean

    def _segments(self, size: int) -> Iterator[tuple[slice, slice]]:
        """(elements, blocks) slices of whole blocks that go to the executor in one call each."""
        block = self.quantizer.block_size
        limit = self.executor.batch_limit
        blocks = self.quantizer.block_count(size)
        stride = blocks if limit is None else max(1, limit // block)
        for start in range(0, blocks, max(1, stride)):
            stop = min(start + stride, blocks)
            yield slice(start * block, min(stop * block, size)), slice(start, stop)

    def _corrected(self, vectors: list[Floats], key: str) -> list[Floats]:
        residuals = self._residuals.get(key)
        if residuals is None:
            return vectors
        if residuals.shape[1] != len(vectors[0]) or residuals.dtype != vectors[0].dtype:
            raise GradientError(
                f"error feedback {key!r} holds {residuals.shape[1]} values of {residuals.dtype}, the gradient has "
                f"{vectors[0].size} of {vectors[0].dtype}; give each tensor its own key"
            )
        return [vector + residual for vector, residual in zip(vectors, residuals, strict=True)]
