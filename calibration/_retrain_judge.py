"""What a network on a chip makes of its inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from calibration._checks import require_whole
from calibration._session import Array
from optinc_hw.errors import CalibrationError
from optinc_hw.onn import Cell, TilePlan, encode_pam4, quantised_mean
from optinc_hw.onn._cells import CellSpace
from optinc_hw.photonics.program import ProgrammedMatrix


class ProgrammedRunner(Protocol):
    """Runs tiles that are already programmed: `BenchTileRunner`, `TwinTileRunner`."""

    @property
    def ports(self) -> int:
        """Ports of the chip."""
        ...

    def load(self, programmed: ProgrammedMatrix) -> None:
        """Take the matrix that the next vectors are multiplied by."""
        ...

    def forward(self, amplitudes: Array) -> Array:
        """Return products (batch, rows) of amplitudes (batch, cols) in [-1, 1]."""
        ...


@dataclass(frozen=True)
class NetworkJudgement:
    """What a network, or a cell, on a chip makes of its inputs.

    Parameters
    ----------
    wrong, symbols
        Wrong outputs (PAM4 symbols, carries of cells), and all.
    margin
        What is left of half a level, or carry, at the worst output; negative where one is wrong.
    """

    wrong: int
    symbols: int
    margin: float

    @property
    def rate(self) -> float:
        """Symbol error rate."""
        return self.wrong / self.symbols

    def __str__(self) -> str:
        """Summarise for people."""
        return f"{self.wrong} of {self.symbols} symbols wrong ({self.rate:.2g}), margin {self.margin:.3f}"


@dataclass(frozen=True)
class Examples:
    """Inputs (m, K) of a network or a cell, right outputs (m, M), and the distances (M,) of their levels."""

    inputs: Array
    answers: Array
    steps: Array

    @classmethod
    def of(cls, plan: TilePlan, rng: np.random.Generator, count: int) -> "Examples":
        network = plan.network
        if isinstance(network, Cell):
            space = CellSpace(network.divisor, network.digits)
            index = rng.permutation(space.size) if space.size <= count else rng.integers(0, space.size, count)
            return cls(space.signals(index), space.answers(index), network.steps)
        codes = rng.integers(0, 1 << network.bits, (count, network.servers))
        answers = encode_pam4(quantised_mean(codes, network.rounding), network.bits)
        return cls(network.prepare(codes), answers.astype(np.float64), np.ones(answers.shape[1]))


def judge(
    plan: TilePlan,
    programmed: Sequence[ProgrammedMatrix],
    runner: ProgrammedRunner,
    *,
    inputs: int = 1000,
    seed: int = 0,
) -> NetworkJudgement:  # fmt: skip
    """Run random inputs of a network, or all of a cell that has no more, through a chip.

    Parameters
    ----------
    plan
        The network and its tiles.
    programmed
        What each tile is set to.
    runner
        The chip.
    inputs
        Number of inputs.
    seed
        Of the inputs.

    Raises
    ------
    CalibrationError
        If ``inputs`` is below 1 or ``seed`` below 0, ``programmed`` has not one entry a tile, or a product that the
        chip gives is not finite: such an output is neither right nor wrong.
    """
    require_whole("inputs", inputs, 1)
    require_whole("seed", seed, 0)
    return judged(plan, programmed, runner, Examples.of(plan, np.random.default_rng(seed), inputs))


def judged(
    plan: TilePlan, programmed: Sequence[ProgrammedMatrix], runner: ProgrammedRunner, examples: Examples
) -> NetworkJudgement:
    """Run given inputs through a chip."""
    outputs = chip_outputs(plan, programmed, examples.inputs, runner)
    away = np.abs(outputs - examples.answers) / examples.steps
    return NetworkJudgement(int((away >= 0.5).sum()), away.size, 0.5 - float(away.max()))


def chip_outputs(
    plan: TilePlan, programmed: Sequence[ProgrammedMatrix], inputs: Array, runner: ProgrammedRunner
) -> Array:
    """Return outputs (batch, M) that a chip gives for the network's inputs (batch, K)."""
    if len(programmed) != len(plan.tiles):
        raise CalibrationError(
            f"{len(programmed)} programmed matrices were given for the plan's {len(plan.tiles)} tiles; give one a tile"
        )
    return plan.run(inputs, lambda index, amplitudes: run_tile(plan, index, programmed[index], amplitudes, runner))


def run_tile(
    plan: TilePlan, index: int, programmed: ProgrammedMatrix, amplitudes: Array, runner: ProgrammedRunner
) -> Array:
    """Return products (batch, r) that a chip gives for one tile; raises CalibrationError unless all are finite."""
    runner.load(programmed)
    products = runner.forward(amplitudes)
    bad = np.argwhere(~np.isfinite(products))
    if len(bad):
        first = tuple(bad[0])
        raise CalibrationError(
            f"tile {index} of layer {plan.tiles[index].layer}: {len(bad)} of {products.size} products of the chip are "
            f"not finite, the first {products[first]} at input {first[0]}, row {first[1]}; check laser, detectors and "
            "ranges"
        )
    return products
