"""Twin and bench executors: a network's layers on a chip, tile by tile."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.aggregation._executor import Answers, Progress, placed
from optinc_hw.errors import CalibrationError, NetworkError
from optinc_hw.onn import (
    CellChain,
    CellTree,
    Multiply,
    OpticalNetwork,
    TilePlan,
    TileRunner,
    check_codes,
    symbol_count,
    tile,
)
from optinc_hw.photonics import ProgrammedMatrix

Network = OpticalNetwork | CellChain | CellTree
"""What runs on a chip: a network, a chain of cells, or a tree of chains."""


@dataclass(frozen=True)
class ChipUse:
    """What a chip has done for an executor.

    Parameters
    ----------
    reprogrammings
        Matrices it was set to.
    vectors
        Vectors sent through it.
    seconds
        Time in s that both took, by the clock of this process.
    """

    reprogrammings: int = 0
    vectors: int = 0
    seconds: float = 0.0


class _TiledExecutor:
    """Runs a network's layers through a tile runner, each tile programmed once for the whole batch."""

    def __init__(
        self,
        network: Network,
        runner: TileRunner,
        *,
        plan: TilePlan | None = None,
        programmed: Sequence[ProgrammedMatrix] | None = None,
        slice_size: int = 1 << 16,
        progress: Progress | None = None,
    ) -> None:
        tiled = network if isinstance(network, OpticalNetwork) else network.cell
        chosen = tile(tiled, runner.ports) if plan is None else plan
        if chosen.network is not tiled:
            raise NetworkError("the tile plan belongs to another network; make it with tile(network or cell, ports)")
        if chosen.ports > runner.ports:
            raise NetworkError(
                f"the tile plan is for {chosen.ports} ports, the chip has {runner.ports}; make it with "
                f"tile(network, {runner.ports})"
            )
        if programmed is not None:
            _check_programmed(runner, chosen, programmed)
        if slice_size < 1:
            raise NetworkError(f"slice_size must be at least 1 vector, got {slice_size!r}")
        self.network = network
        self.runner = runner
        self.plan = chosen
        self.programmed = programmed
        self.slice_size = slice_size
        self.progress = progress
        self.use = ChipUse()

    @property
    def servers(self) -> int:
        """Number N of servers."""
        return self.network.total if isinstance(self.network, CellTree) else self.network.servers

    @property
    def bits(self) -> int:
        """Width B of a code."""
        return self.network.bits

    @property
    def inputs(self) -> int:
        """Number K of averages on which the answer depends."""
        return symbol_count(self.bits) if isinstance(self.network, CellTree) else self.network.inputs

    @property
    def batch_limit(self) -> None:
        """None: tiles are programmed in turn for each call, so one call should take all."""

    def run(self, codes: ArrayLike, out: Answers | None = None) -> Answers:
        """Return the means (batch,) of the servers' codes (batch, servers) as the chip gives them.

        They are of type int64 or in ``out``.

        Raises
        ------
        NetworkError
            If codes are not integers in range, do not have one column a server, or the runner returns a wrong shape.
        CalibrationError
            If a measured amplitude is not finite or, on a bench, not possible.
        """
        if not isinstance(self.network, CellTree):
            return placed(self.network.decode(self.run_analog(codes)), out)
        array = check_codes(codes, self.servers, self.bits)
        return placed(self.network.run(array, self._multiply(len(array))) if len(array) else np.zeros(0, np.int64), out)

    def run_analog(self, codes: ArrayLike) -> NDArray[np.float64]:
        """Return analogue symbols (batch, M) before the receivers' decision, in PAM4 levels; errors as in `run`.

        Raises
        ------
        NetworkError
            Also for a tree, whose receivers decide at each level.
        """
        if isinstance(self.network, CellTree):
            raise NetworkError("a tree has no analogue symbols of its own: receivers decide at each level; use run")
        inputs = self.network.prepare(codes)
        if len(inputs) == 0:
            return np.empty((0, symbol_count(self.bits)))
        return self.network.forward(inputs, self._multiply(len(inputs)))

    def _multiply(self, batch: int) -> Multiply:
        """Return the product of a layer on the chip, by its index in the network or the chain."""
        depth, total, done = len(self.plan.layers), batch * self._passes() * len(self.plan.tiles), 0

        def forward(index: int, amplitudes: NDArray[np.float64]) -> NDArray[np.float64]:
            nonlocal done
            self._program(index)
            outputs = np.empty((len(amplitudes), self.plan.tiles[index].shape[0]))
            for start in range(0, len(amplitudes), self.slice_size):
                piece = amplitudes[start : start + self.slice_size]
                outputs[start : start + self.slice_size] = self._measure(index, piece)
                done += len(piece)
                if self.progress is not None:
                    self.progress(done, total)
            return outputs

        return lambda layer, signals: self.plan.run_layer(layer % depth, signals, forward)

    def _passes(self) -> int:
        """Return how often one element's signals pass through all tiles."""
        if isinstance(self.network, CellTree):
            return sum(chains * cells for chains, cells in zip(self.network.chains, self.network.cells, strict=True))
        return self.network.count if isinstance(self.network, CellChain) else 1

    def _program(self, index: int) -> None:
        begun = time.perf_counter()
        if self.programmed is None:
            self.runner.program(self.plan.tiles[index].matrix)
        else:
            self.runner.load(self.programmed[index])  # type: ignore[attr-defined] # checked at the start
        self._used(begun, reprogrammings=1)

    def _measure(self, index: int, amplitudes: NDArray[np.float64]) -> NDArray[np.float64]:
        """One checked ``forward`` of the runner."""
        begun = time.perf_counter()
        outputs = np.asarray(self.runner.forward(amplitudes), dtype=np.float64)
        self._used(begun, vectors=len(amplitudes))
        expected = (len(amplitudes), self.plan.tiles[index].shape[0])
        if outputs.shape != expected:
            raise NetworkError(
                f"the tile runner returned shape {outputs.shape} for {self._where(index)}, not {expected}"
            )
        if not np.isfinite(outputs).all():
            raise CalibrationError(f"the tile runner returned NaN or inf for {self._where(index)}; check its detectors")
        return outputs

    def _used(self, begun: float, *, reprogrammings: int = 0, vectors: int = 0) -> None:
        self.use = ChipUse(
            self.use.reprogrammings + reprogrammings,
            self.use.vectors + vectors,
            self.use.seconds + time.perf_counter() - begun,
        )

    def _where(self, index: int) -> str:
        return f"tile {index} of {len(self.plan.tiles)} (layer {self.plan.tiles[index].layer})"


def _check_programmed(runner: TileRunner, plan: TilePlan, programmed: Sequence[ProgrammedMatrix]) -> None:
    if not hasattr(runner, "load"):
        raise NetworkError(
            f"{type(runner).__name__} cannot load programmed matrices; use a runner of a twin or a bench"
        )
    shapes, expected = [one.matrix.shape for one in programmed], [part.shape for part in plan.tiles]
    if shapes != expected:
        raise NetworkError(f"programmed matrices of shapes {shapes} do not fit the plan's tiles of shapes {expected}")


class TwinExecutor(_TiledExecutor):
    """The calibrated chip model: vectors in large slices, as memory allows.

    Parameters
    ----------
    network
        The network, chain or tree to run.
    runner
        Tile runner of the twin.
    plan
        Tiles of the network or of the cell to use, such as smaller ones than the chip allows; default ``tile(network,
        runner.ports)``.
    programmed
        Each tile's matrix as it was programmed before, such as by retraining (``[one.programmed for one in
        retrained.tiles]``), instead of programming it by the runner's calibration.
    slice_size
        Most vectors in one call of the runner.
    progress
        Called with (vectors done, vectors in all) after each slice.

    Raises
    ------
    NetworkError
        If plan or programmed matrices do not fit network or runner.
    """


class BenchExecutor(_TiledExecutor):
    """The instruments: small slices, so that progress is seen, and every reading checked against physics.

    A passive chip gives no output amplitude above the root of the summed squares of its inputs.  A reading beyond
    that by more than ``excess`` means dead or swapped detectors or a calibration that does not belong to this
    chip; the run then stops before the next tile is programmed.

    Parameters
    ----------
    network
        The network, chain or tree to run.
    runner
        Tile runner of the bench.
    plan
        Tiles of the network or of the cell to use; default ``tile(network, runner.ports)``.
    programmed
        Each tile's matrix as it was programmed before, such as by retraining (``[one.programmed for one in
        retrained.tiles]``), instead of programming it by the runner's calibration.
    slice_size
        Most vectors in one call of the runner.
    excess
        Allowed excess of a reading, in units of full scale; ``math.inf`` for a chip known to be uncalibrated.
    progress
        Called with (vectors done, vectors in all) after each slice.

    Raises
    ------
    NetworkError
        If plan or programmed matrices do not fit network or runner, or ``excess`` is negative or NaN.
    """

    def __init__(
        self,
        network: Network,
        runner: TileRunner,
        *,
        plan: TilePlan | None = None,
        programmed: Sequence[ProgrammedMatrix] | None = None,
        slice_size: int = 64,
        excess: float = 0.25,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(network, runner, plan=plan, programmed=programmed, slice_size=slice_size, progress=progress)
        if not excess >= 0.0:
            raise NetworkError(f"excess must not be negative or NaN, got {excess!r}")
        self.excess = excess

    def _measure(self, index: int, amplitudes: NDArray[np.float64]) -> NDArray[np.float64]:
        outputs = super()._measure(index, amplitudes)
        limit = np.linalg.norm(amplitudes, axis=1) + self.excess
        over: NDArray[Any] = np.argwhere(np.abs(outputs) > limit[:, None])
        if len(over):
            vector, row = over[0].tolist()
            raise CalibrationError(
                f"output {row} of {self._where(index)} reads amplitude {outputs[vector, row]:.3g}; these inputs allow "
                f"at most {limit[vector]:.3g} (full scale 1): check the detectors and calibrate this chip"
            )
        return outputs
