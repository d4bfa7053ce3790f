"""What networks and cells are trained and judged on."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from optinc_hw.onn._cells import CellSpace
from optinc_hw.onn._checks import Rounding, symbol_count
from optinc_hw.onn._codec import encode_pam4
from optinc_hw.onn._enumeration import exact_means
from optinc_hw.onn._space import InputSpace

LOOK_INPUTS = 1 << 20
"""Most inputs of a look; larger spaces are sampled."""
_CHUNK = 1 << 15
_CELL_EXAMPLES = 1 << 10
"""Examples of an epoch for cells of few inputs: each is shown with many errors of its carry."""
_LOOKED_AT = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Carry errors of a look, in units of the largest."""

_Real = NDArray[np.float64]
_Batch = tuple[_Real, _Real]


class Examples(Protocol):
    """Inputs and the levels that outputs should have."""

    @property
    def size(self) -> int:
        """Number of examples."""
        ...

    @property
    def high(self) -> _Real:
        """Largest value (inputs,) of each input; the smallest is 0."""
        ...

    @property
    def input_steps(self) -> _Real:
        """Distances (inputs,) of the levels of the inputs."""
        ...

    @property
    def output_steps(self) -> _Real:
        """Distances (outputs,) of the levels of the outputs."""
        ...

    @property
    def described(self) -> dict[str, Any]:
        """Name of the examples in a checkpoint, as JSON values."""
        ...

    def draw(self, index: NDArray[np.int64], generator: torch.Generator) -> _Batch:
        """Return inputs (batch, inputs) and levels (batch, outputs) of the examples with the indices (batch,)."""
        ...

    def looks(self, epoch: int) -> Iterator[_Batch]:
        """All that a network is judged on after an epoch, in pieces."""
        ...


@dataclass(frozen=True)
class SpaceExamples:
    """Every input of a network.

    Parameters
    ----------
    space
        Servers, bits and inputs.
    rounding
        Rule of the mean.
    """

    space: InputSpace
    rounding: Rounding

    @property
    def size(self) -> int:
        """Number of inputs."""
        return self.space.size

    @property
    def high(self) -> _Real:
        """Largest value (K,) of each input."""
        return np.array(self.space.maxima, dtype=np.float64)

    @property
    def input_steps(self) -> _Real:
        """Distances (K,) of the levels of the inputs."""
        return np.full(self.space.inputs, 1.0 / self.space.servers)

    @property
    def output_steps(self) -> _Real:
        """Distances (M,) of the levels of the outputs."""
        return np.ones(symbol_count(self.space.bits))

    @property
    def described(self) -> dict[str, Any]:
        """Servers, bits, inputs and rounding."""
        space = self.space
        return {
            "servers": space.servers, "bits": space.bits, "inputs": space.inputs, "rounding": self.rounding,
        }  # fmt: skip

    def draw(self, index: NDArray[np.int64], generator: torch.Generator) -> _Batch:  # noqa: ARG002 - of the protocol
        """Return inputs and levels of the points with the indices (batch,)."""
        return self._batch(index)

    def looks(self, epoch: int) -> Iterator[_Batch]:
        """Every input, or a part of them that moves on with the epochs."""
        stride = -(-self.space.size // LOOK_INPUTS)
        index = np.arange(epoch % stride, self.space.size, stride)
        for start in range(0, len(index), _CHUNK):
            yield self._batch(index[start : start + _CHUNK])

    def _batch(self, index: NDArray[np.int64]) -> _Batch:
        sums = self.space.sums(index)
        levels = encode_pam4(exact_means(sums, self.space, self.rounding), self.space.bits)
        return sums / self.space.servers, levels.astype(np.float64)


@dataclass(frozen=True)
class CellExamples:
    """Every input of a cell, with errors of its carry.

    Parameters
    ----------
    space
        Divisor and digits.
    jitter
        Largest error of the carry, in distances of its levels.
    """

    space: CellSpace
    jitter: float

    @cached_property
    def _copies(self) -> int:
        return max(1, _CELL_EXAMPLES // self.space.size)

    @cached_property
    def _all(self) -> _Batch:
        index = np.arange(self.space.size)
        return self.space.signals(index), self.space.answers(index)

    @property
    def size(self) -> int:
        """Number of inputs, each with one error of its carry or, of few inputs, with several."""
        return self._copies * self.space.size

    @property
    def high(self) -> _Real:
        """Largest value (g + 1,) of each input."""
        return np.array([3.0] * self.space.digits + [4.0 - 4.0 / self.space.divisor])

    @property
    def input_steps(self) -> _Real:
        """Distances (g + 1,) of the levels of the inputs."""
        return np.array([1.0] * self.space.digits + [4.0]) / self.space.divisor

    @property
    def output_steps(self) -> _Real:
        """Distances (g + 1,) of the levels of the outputs."""
        return np.array([4.0 / self.space.divisor] + [1.0] * self.space.digits)

    @property
    def described(self) -> dict[str, Any]:
        """Divisor and digits."""
        return {"divisor": self.space.divisor, "digits": self.space.digits}

    def draw(self, index: NDArray[np.int64], generator: torch.Generator) -> _Batch:
        """Return inputs and levels; the errors of an input's copies are spread over all that they may be."""
        copy, point = np.divmod(index, self.space.size)
        within = torch.rand(len(index), generator=generator, dtype=torch.float64).numpy()
        return self._batch(point, self.jitter * (2.0 * (copy + within) / self._copies - 1.0))

    def looks(self, epoch: int) -> Iterator[_Batch]:  # noqa: ARG002 - of the protocol
        """Every input with the largest errors, half of them, and none."""
        for start in range(0, self.space.size, _CHUNK):
            point = np.arange(start, min(start + _CHUNK, self.space.size))
            for part in _LOOKED_AT:
                yield self._batch(point, np.full(len(point), part * self.jitter))

    def _batch(self, point: NDArray[np.int64], away: _Real) -> _Batch:
        signals, answers = (values[point] for values in self._all)
        signals[:, -1] += away * 4.0 / self.space.divisor
        return signals, answers
