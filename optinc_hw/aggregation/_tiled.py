"""Twin and bench executors: a network's layers on a chip, tile by tile."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.aggregation._executor import Answers, Progress, placed
from optinc_hw.errors import CalibrationError, NetworkError
from optinc_hw.onn import OpticalNetwork, TilePlan, TileRunner, tile


class _TiledExecutor:
    """Runs a network's layers through a tile runner, each tile programmed once for the whole batch."""

    def __init__(
        self,
        network: OpticalNetwork,
        runner: TileRunner,
        *,
        plan: TilePlan | None,
        slice_size: int,
        progress: Progress | None,
    ) -> None:
        chosen = tile(network, runner.ports) if plan is None else plan
        if chosen.network is not network:
            raise NetworkError("the tile plan belongs to another network; make it with tile(network, ports)")
        if chosen.ports > runner.ports:
            raise NetworkError(
                f"the tile plan is for {chosen.ports} ports, the chip has {runner.ports}; make it with "
                f"tile(network, {runner.ports})"
            )
        if slice_size < 1:
            raise NetworkError(f"slice_size must be at least 1 vector, got {slice_size!r}")
        self.network = network
        self.runner = runner
        self.plan = chosen
        self.slice_size = slice_size
        self.progress = progress

    @property
    def servers(self) -> int:
        """Number N of servers."""
        return self.network.servers

    @property
    def bits(self) -> int:
        """Width B of a code."""
        return self.network.bits

    @property
    def inputs(self) -> int:
        """Number K of network inputs."""
        return self.network.inputs

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
        return placed(self.network.decode(self.run_analog(codes)), out)

    def run_analog(self, codes: ArrayLike) -> NDArray[np.float64]:
        """Return analogue symbols (batch, M) before the receivers' decision, in PAM4 levels; errors as in `run`."""
        inputs = self.network.prepare(codes)
        if len(inputs) == 0:
            return np.empty((0, self.network.sizes[-1]))
        total = len(self.plan.tiles) * len(inputs)
        done = 0

        def forward(index: int, amplitudes: NDArray[np.float64]) -> NDArray[np.float64]:
            nonlocal done
            target = self.plan.tiles[index]
            self.runner.program(target.matrix)
            outputs = np.empty((len(amplitudes), target.shape[0]))
            for start in range(0, len(amplitudes), self.slice_size):
                piece = amplitudes[start : start + self.slice_size]
                outputs[start : start + self.slice_size] = self._measure(index, piece)
                done += len(piece)
                if self.progress is not None:
                    self.progress(done, total)
            return outputs

        return self.plan.run(inputs, forward)

    def _measure(self, index: int, amplitudes: NDArray[np.float64]) -> NDArray[np.float64]:
        """One checked ``forward`` of the runner."""
        outputs = np.asarray(self.runner.forward(amplitudes), dtype=np.float64)
        expected = (len(amplitudes), self.plan.tiles[index].shape[0])
        if outputs.shape != expected:
            raise NetworkError(
                f"the tile runner returned shape {outputs.shape} for {self._where(index)}, not {expected}"
            )
        if not np.isfinite(outputs).all():
            raise CalibrationError(f"the tile runner returned NaN or inf for {self._where(index)}; check its detectors")
        return outputs

    def _where(self, index: int) -> str:
        return f"tile {index} of {len(self.plan.tiles)} (layer {self.plan.tiles[index].layer})"


class TwinExecutor(_TiledExecutor):
    """The calibrated chip model: vectors in large slices, as memory allows.

    Parameters
    ----------
    network
        The network to run.
    runner
        Tile runner of the twin.
    plan
        Tiles to use, such as smaller ones than the chip allows; default ``tile(network, runner.ports)``.
    slice_size
        Most vectors in one call of the runner.
    progress
        Called with (vectors done, vectors in all) after each slice.

    Raises
    ------
    NetworkError
        If the plan fits neither network nor runner.
    """

    def __init__(
        self,
        network: OpticalNetwork,
        runner: TileRunner,
        *,
        plan: TilePlan | None = None,
        slice_size: int = 1 << 16,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(network, runner, plan=plan, slice_size=slice_size, progress=progress)


class BenchExecutor(_TiledExecutor):
    """The instruments: small slices, so that progress is seen, and every reading checked against physics.

    A passive chip gives no output amplitude above the root of the summed squares of its inputs.  A reading beyond
    that by more than ``excess`` means dead or swapped detectors or a calibration that does not belong to this
    chip; the run then stops before the next tile is programmed.

    Parameters
    ----------
    network
        The network to run.
    runner
        Tile runner of the bench.
    plan
        Tiles to use; default ``tile(network, runner.ports)``.
    slice_size
        Most vectors in one call of the runner.
    excess
        Allowed excess of a reading, in units of full scale; ``math.inf`` for a chip known to be uncalibrated.
    progress
        Called with (vectors done, vectors in all) after each slice.

    Raises
    ------
    NetworkError
        If the plan fits neither network nor runner, or ``excess`` is negative or NaN.
    """

    def __init__(
        self,
        network: OpticalNetwork,
        runner: TileRunner,
        *,
        plan: TilePlan | None = None,
        slice_size: int = 64,
        excess: float = 0.25,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(network, runner, plan=plan, slice_size=slice_size, progress=progress)
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
