"""Optical networks: layers of real matrices with digital biases and activations after detection."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import NetworkError
from optinc_hw.onn._area import Form, count_mzis
from optinc_hw.onn._checks import Rounding, check_codes, check_rounding, group_length, symbol_count
from optinc_hw.onn._codec import decode_pam4, encode_pam4, preprocess
from optinc_hw.onn._rows import tree_couplers

Activation = Literal["clip01", "relu", "linear", "sin2"]
Multiply = Callable[[int, NDArray[np.float64]], NDArray[np.float64]]
"""``multiply(layer_index, x (batch, in)) -> (batch, out)``: the product that optics may do instead of W x."""


def frozen_array(values: ArrayLike, ndim: int, what: str) -> NDArray[np.float64]:
    """Read-only float64 copy of ``values``; raises NetworkError if its rank differs or it holds NaN."""
    array = np.array(values, dtype=np.float64)
    if array.ndim != ndim or np.isnan(array).any():
        raise NetworkError(f"{what} must have {ndim} dimension(s) and no NaN, got shape {array.shape}")
    array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: ``activation(W x + bias)``.

    Parameters
    ----------
    weight
        Matrix W (out, in), float64; the part that optics multiply.
    bias
        Digital offsets (out,), added after detection.
    activation
        ``"clip01"`` (saturating at 0 and 1), ``"relu"``, ``"linear"``, or ``"sin2"`` (sin^2(pi z), the transmission of
        an MZI driven over z periods) for each output (out,); digital.
    low, high
        Range (in,) of each input in the noise-free network.  Tiles scale their amplitudes by it, so no data are needed.
    step
        Distance (in,) of the levels that each noise-free input takes, counted from ``low``; 0 for a continuum.
    slack
        Error (out,) of each W x + bias that the network absorbs without changing a symbol: distance to the sloping
        part for a saturating unit, 0.5 for an output, inf for other hidden units, which pass their errors on.

    Raises
    ------
    NetworkError
        If shapes disagree, values are not finite, an activation is unknown, or a range is reversed.
    """

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    activation: tuple[Activation, ...]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    step: NDArray[np.float64]
    slack: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name in ("weight", "bias", "low", "high", "step", "slack"):
            array = frozen_array(getattr(self, name), 2 if name == "weight" else 1, f"layer {name}")
            if name != "slack" and not np.isfinite(array).all():
                raise NetworkError(f"layer {name} must be finite")
            object.__setattr__(self, name, array)
        rows, cols = self.weight.shape
        lengths = tuple(len(v) for v in (self.bias, self.activation, self.slack, self.low, self.high, self.step))
        if rows < 1 or cols < 1 or lengths != (rows, rows, rows, cols, cols, cols):
            raise NetworkError(
                f"a layer of {rows} outputs and {cols} inputs got bias, activation, slack, low, high and step of "
                f"lengths {lengths}"
            )
        unknown = sorted(set(self.activation) - {"clip01", "relu", "linear", "sin2"})
        if unknown:
            raise NetworkError(f"activation must be 'clip01', 'relu', 'linear' or 'sin2', got {unknown}")
        if np.any(self.low > self.high):
            raise NetworkError(f"input {int(np.argmax(self.low > self.high))} of a layer has low above high")
        if np.any(self.step < 0.0):
            raise NetworkError(f"input {int(np.argmax(self.step < 0.0))} of a layer has a negative step")

    @property
    def saturating(self) -> NDArray[np.bool_]:
        """Mask (out,) of the units that clip to 0..1."""
        return np.array([kind == "clip01" for kind in self.activation])

    @cached_property
    def folding(self) -> NDArray[np.bool_]:
        """Mask (out,) of the units that are sin^2."""
        return np.array([kind == "sin2" for kind in self.activation])

    @cached_property
    def _bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Least and largest output (out,) that each activation but sin^2 lets through."""
        through = self.folding | np.array([kind == "linear" for kind in self.activation])
        return np.where(through, -np.inf, 0.0), np.where(self.saturating, 1.0, np.inf)

    def activate(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Apply each unit's activation to W x + bias (batch, out)."""
        signals = np.clip(values, *self._bounds)
        if self.folding.any():
            signals[:, self.folding] = np.sin(np.pi * values[:, self.folding]) ** 2
        return signals


@dataclass(frozen=True, eq=False)
class OpticalNetwork:
    """Network that maps unit P's averages to the PAM4 symbols of the servers' mean.

    Parameters
    ----------
    servers
        Number N of servers.
    bits
        Width B of a code.
    rounding
        Rule of the mean that the network stands for.
    layers
        The layers; the first takes K inputs, the last gives M = ceil(B / 2) analogue symbols.
    margin
        Smallest error, in PAM4 level distances, of any decided quantity (threshold input, folded value or output) that
        the network does not absorb; 0.5 is the best possible.

    Raises
    ------
    NetworkError
        If layers do not fit together or to the codes.
    """

    servers: int
    bits: int
    rounding: Rounding
    layers: tuple[Layer, ...]
    margin: float

    def __post_init__(self) -> None:
        check_rounding(self.rounding)
        if self.servers < 1 or not self.layers:
            raise NetworkError(f"a network needs servers and layers, got {self.servers} and {len(self.layers)}")
        group_length(symbol_count(self.bits), self.inputs)
        for k, (layer, following) in enumerate(pairwise(self.layers)):
            if layer.weight.shape[0] != following.weight.shape[1]:
                raise NetworkError(
                    f"layer {k} gives {layer.weight.shape[0]} signals, layer {k + 1} takes {following.weight.shape[1]}"
                )
        if self.layers[-1].weight.shape[0] != symbol_count(self.bits):
            raise NetworkError(
                f"the last layer gives {self.layers[-1].weight.shape[0]} symbols, {self.bits} bits need "
                f"{symbol_count(self.bits)}"
            )

    @property
    def inputs(self) -> int:
        """Number K of inputs."""
        return int(self.layers[0].weight.shape[1])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Signals before the first and after each layer, such as (4, 6, 6, 6, 6, 4)."""
        return (self.inputs, *(int(layer.weight.shape[0]) for layer in self.layers))

    def mzis(self, form: Form = "svd") -> int:
        """Count the MZIs of all layers in the given form (`count_mzis`), gains and activations not counted."""
        return sum(count_mzis((rows, cols), form) for cols, rows in pairwise(self.sizes))

    @property
    def tree_couplers(self) -> int:
        """Couplers of all layers, wired as trees of splitters and combiners instead of meshes.

        Gains, delay lines and bias light are not counted.
        """
        return sum(tree_couplers(layer.weight) for layer in self.layers)

    def prepare(self, codes: ArrayLike) -> NDArray[np.float64]:
        """Encode servers' codes (batch, servers) and average them in unit P: network inputs (batch, K).

        Raises
        ------
        NetworkError
            If codes are not integers in range or do not have one column a server.
        """
        return preprocess(encode_pam4(check_codes(codes, self.servers, self.bits), self.bits), self.inputs)

    def forward(self, inputs: ArrayLike, multiply: Multiply | None = None) -> NDArray[np.float64]:
        """Return analogue symbols (batch, M) for network inputs (batch, K).

        Parameters
        ----------
        inputs
            Unit P's averages (batch, K).
        multiply
            Replaces the exact product of each layer, so that optics can do it; see `TilePlan.run_layer`.

        Raises
        ------
        NetworkError
            If inputs or a product have the wrong shape.
        """
        signals = np.asarray(inputs, dtype=np.float64)
        if signals.ndim != 2 or signals.shape[1] != self.inputs:
            raise NetworkError(f"network inputs have shape {signals.shape}; expected (batch, {self.inputs})")
        for index, layer in enumerate(self.layers):
            product = signals @ layer.weight.T if multiply is None else multiply(index, signals)
            if product.shape != (len(signals), len(layer.bias)):
                raise NetworkError(
                    f"the product of layer {index} has shape {product.shape}; expected "
                    f"{(len(signals), len(layer.bias))}"
                )
            signals = layer.activate(product + layer.bias)
        return signals

    def decode(self, outputs: ArrayLike) -> NDArray[np.int64]:
        """Decide analogue symbols (batch, M) for the nearest levels 0..3, as the receivers do: codes (batch,).

        With an odd number of bits the first symbol has the levels 0 and 1 only.

        Raises
        ------
        NetworkError
            If outputs have the wrong shape or are not finite.
        """
        values = np.asarray(outputs, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != self.sizes[-1]:
            raise NetworkError(f"network outputs have shape {values.shape}; expected (batch, {self.sizes[-1]})")
        if not np.isfinite(values).all():
            raise NetworkError(f"network output {int(np.argmin(np.isfinite(values).all(axis=1)))} is not finite")
        top = np.full(self.sizes[-1], 3.0)
        top[0] = 1.0 if self.bits % 2 else 3.0
        return decode_pam4(np.clip(np.floor(values + 0.5), 0.0, top).astype(np.int64))

    def run(self, codes: ArrayLike) -> NDArray[np.int64]:
        """Return the means (batch,) of the servers' codes (batch, servers) by the noise-free network.

        Raises
        ------
        NetworkError
            If codes are not integers in range or do not have one column a server.
        """
        return self.decode(self.forward(self.prepare(codes)))
