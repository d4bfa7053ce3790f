"""Retraining of a network through the chip: tile after tile, forward on the chip, backward through the twin."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from calibration._checks import require_each, require_whole, require_within
from calibration._retrain_cell import Cell
from calibration._retrain_file import RetrainedTile, identity, load_tiles, save_tiles
from calibration._retrain_judge import Examples, NetworkJudgement, ProgrammedRunner, chip_outputs, judged, run_tile
from calibration._retrain_task import CellTask, HeaterDac
from calibration._retrain_twin import LearningTwin, TwinDoubt
from calibration._session import Array
from optinc_hw.errors import CalibrationError, LimitError, MatrixError
from optinc_hw.onn import TilePlan
from optinc_hw.photonics import TwinParameters
from optinc_hw.photonics.program import ProgrammedMatrix, program_matrix

Progress = Callable[[str, int, int], None]
_CANDIDATES = 6000
"""Inputs of the network among whose signals those of training are chosen."""
_SHARES = 1e-6, 1.0 - 1e-6
"""Shares that settings may ask for, both ends included."""


@dataclass(frozen=True)
class RetrainingSettings:
    """How a network is retrained.

    Parameters
    ----------
    inputs
        Inputs that each tile is trained on: those that differ most among what the network can send it.
    settings
        Most settings of a tile that are measured.
    enough
        Rms error, as a share of what the network absorbs, at which a tile is good on its inputs.
    checked
        Inputs that a tile is checked with after that: a third rare ones, the others as the network sends them.
    tolerance
        Largest error among these, as a share of what the network absorbs, with which the tile is done.
    rounds
        Most times that a tile is trained; the worst inputs of a check are added for the next time.
    judged
        Inputs that the network is judged by, before and after: random codes, or all that a cell can be given if there
        are no more.
    memory
        Measured settings that the twin learns from, the last ones.
    doubt
        How far the twin may be off.
    seed
        Of codes and starts.

    Raises
    ------
    CalibrationError
        If a number is no whole one of at least 1 (seed: 0), a share does not lie between 0 and 1, or the doubt is no
        `TwinDoubt`.
    """

    inputs: int = 48
    settings: int = 8
    enough: float = 0.03
    checked: int = 600
    tolerance: float = 0.15
    rounds: int = 5
    judged: int = 1000
    memory: int = 10
    doubt: TwinDoubt = field(default_factory=TwinDoubt)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("inputs", "settings", "checked", "rounds", "judged", "memory"):
            require_whole(name, getattr(self, name), 1)
        require_whole("seed", self.seed, 0)
        for name in ("enough", "tolerance"):
            require_within(name, getattr(self, name), *_SHARES, remedy="give a share of what the network absorbs")
        if not isinstance(self.doubt, TwinDoubt):
            raise CalibrationError(f"doubt must be a TwinDoubt, got {self.doubt!r}; TwinDoubt() has usual values")


@dataclass(frozen=True)
class RetrainedNetwork:
    """A network on a chip, retrained.

    Parameters
    ----------
    plan
        The network and its tiles.
    tiles
        What each tile is set to, in the order of the plan's tiles.
    before, after
        The network as the twin alone would set it, and as retrained, on the same chip and codes.
    """

    plan: TilePlan
    tiles: tuple[RetrainedTile, ...]
    before: NetworkJudgement
    after: NetworkJudgement

    def outputs(self, inputs: Array, runner: ProgrammedRunner) -> Array:
        """Return outputs (batch, M) that a chip gives for the network's inputs (batch, K)."""
        return chip_outputs(self.plan, [tile.programmed for tile in self.tiles], inputs, runner)

    def __str__(self) -> str:
        """Summarise for people."""
        lines = [f"before: {self.before}", f"after:  {self.after}"]
        lines.append("tile  error before (rms) and after (largest), of the slack  settings measured")
        for index, tile in enumerate(self.tiles):
            lines.append(f"{index:4}  {tile.before:18.1%}  {tile.after:25.1%}  {tile.measured:28}")
        return "\n".join(lines)


def retrain(
    plan: TilePlan,
    runner: ProgrammedRunner,
    twin: TwinParameters,
    dac: HeaterDac,
    settings: RetrainingSettings | None = None,
    *,
    max_power_w: Array | float = np.inf,
    checkpoint: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> RetrainedNetwork:
    """Retrain a network's tiles on the chip that runs them.

    Every tile is measured with the inputs that differ most among those that the network sends it; the twin learns
    from what the chip did (offsets, couplers, heat that spreads), and proposes settings, in whole steps of the DACs,
    that make the errors small where the network absorbs least.  Digital gains and offsets of the outputs are free.  A
    setting replaces another only if it was better on the chip.  With a `TwinTileRunner` all of it happens on the twin.

    Parameters
    ----------
    plan
        The network and its tiles, see `optinc_hw.onn.tile`.
    runner
        The chip.
    twin
        What is known of it; a few per cent off will do.
    dac
        Steps of the heaters.
    settings
        How to train.
    max_power_w
        Limit of every heater (H,) or of all, in W; no setting that is tried exceeds it.
    checkpoint
        File that finished tiles are written to, after each.
    resume
        Go on after the finished tiles of ``checkpoint``, which must have been begun with the same plan, twin, steps,
        limits and settings.
    progress
        Called with a stage, tiles done, and all.

    Raises
    ------
    CalibrationError
        If the plan needs more ports than the chip has, steps or limits do not fit the twin's heaters, there is no
        checkpoint to resume or it was begun with something else, or a product of the chip is not finite.
    MatrixError
        If the twin cannot be programmed to a tile's matrix.
    LimitError
        If a tile's matrix, or the inputs of a tile, need more power of a heater than its limit.
    """
    if plan.ports > runner.ports:
        raise CalibrationError(
            f"the plan is for {plan.ports} ports, the chip has {runner.ports}; cut the network with tile(..., ports)"
        )
    if resume and checkpoint is None:
        raise CalibrationError("to resume, name the checkpoint")
    heaters = len(twin.offset)
    require_each("resistance_ohm (ohm)", dac.resistance_ohm, heaters, zero=False, remedy="take the DAC of this chip")
    limits = _limits(max_power_w, heaters)
    return _Retraining(plan, runner, twin, dac, settings or RetrainingSettings(), limits).run(
        checkpoint, resume=resume, progress=progress
    )


def _limits(max_power_w: Array | float, heaters: int) -> Array:
    """Limits (H,) in W of all heaters; Inf where there is none."""
    given = np.asarray(max_power_w)
    limits = np.full(heaters, max_power_w) if given.ndim == 0 else given
    known = np.where(np.isposinf(limits), 0.0, limits) if limits.dtype.kind == "f" else limits
    require_each("max_power_w (W)", known, heaters, zero=True, remedy="give one limit for all or one a heater")
    return limits.astype(np.float64)


class _Retraining:
    """One retraining: what is known of the chip, and the tiles."""

    def __init__(
        self, plan: TilePlan, runner: ProgrammedRunner, twin: TwinParameters, dac: HeaterDac,
        settings: RetrainingSettings, max_power_w: Array,
    ) -> None:  # fmt: skip
        self._plan, self._runner, self._twin, self._dac = plan, runner, twin, dac
        self._settings, self._max_power_w = settings, max_power_w
        self._rng = np.random.default_rng(settings.seed)
        self._judged_by = Examples.of(plan, self._rng, settings.judged)
        self._signals = _signals(plan, Examples.of(plan, self._rng, _CANDIDATES).inputs)
        self._weights = _weights(plan)

    def run(self, checkpoint: Path | None, *, resume: bool, progress: Progress | None) -> RetrainedNetwork:
        plan, settings = self._plan, self._settings
        begun = identity(plan, self._twin, self._dac, self._max_power_w, asdict(settings))
        done = load_tiles(checkpoint, plan, self._twin, begun) if resume and checkpoint is not None else []
        known = LearningTwin(
            self._twin, settings.doubt, settings.memory, correction=done[-1].correction if done else None
        )
        for index, finished in enumerate(done):
            self._cell(index, known, self._first_inputs(index)).at(
                finished.programmed
            )  # what the twin had seen is not kept in files
        first = [program_matrix(self._twin, part.matrix, self._max_power_w) for part in plan.tiles]
        quantised = [
            replace(one, static_power_w=self._dac.power(self._dac.settings(one.static_power_w, one.max_power_w)))
            for one in first
        ]
        before = judged(plan, quantised, self._runner, self._judged_by)
        for index in range(len(done), len(plan.tiles)):
            if progress is not None:
                progress("retraining", index, len(plan.tiles))
            done.append(self._train(index, known))
            if checkpoint is not None:
                save_tiles(checkpoint, begun, done)
        if progress is not None:
            progress("retraining", len(plan.tiles), len(plan.tiles))
        after = judged(plan, [tile.programmed for tile in done], self._runner, self._judged_by)
        return RetrainedNetwork(plan, tuple(done), before, after)

    def _train(self, index: int, known: LearningTwin) -> RetrainedTile:
        """Train a tile until it is good on inputs that it was not trained on, too."""
        settings, inputs = self._settings, self._first_inputs(index)
        cell = self._cell(index, known, inputs)
        first = cell.at(self._programmed(index, known))
        state, best, least, measured, readings = first, first, np.inf, 0, 0
        for left in reversed(range(settings.rounds)):
            state = cell.train(state, settings.settings, settings.enough)
            worst, share = self._check(index, state.programmed)
            measured += cell.measured
            readings += cell.measured * len(inputs) + settings.checked
            if share < least:
                best, least = state, share
            if share <= settings.tolerance or not left:
                break
            inputs = np.concatenate([inputs, worst])
            cell = self._cell(index, known, inputs)
            try:  # by what was learned meanwhile, a fresh start may be better
                starts = [cell.at(best.programmed), cell.at(self._programmed(index, known))]
            except LimitError:  # what was learned asks for more than heaters may have
                break
            state = min(starts, key=lambda start: start.cost)
        return RetrainedTile(best.programmed, best.correction, float(np.sqrt(first.cost)), least, measured, readings)

    def _programmed(self, index: int, known: LearningTwin) -> ProgrammedMatrix:
        """Program a tile by what was learned, or by what was known beforehand where that is beyond the chip."""
        matrix = self._plan.tiles[index].matrix
        try:
            return program_matrix(known.parameters, matrix, self._max_power_w)
        except (LimitError, MatrixError):
            return program_matrix(self._twin, matrix, self._max_power_w)

    def _check(self, index: int, programmed: ProgrammedMatrix) -> tuple[Array, float]:
        """Send a tile inputs that it was not trained on: those it does worst, and the largest share of slack used."""
        candidates, count = self._candidates(index), self._settings.checked
        rare = self._spread_inputs(index)[self._settings.inputs :]
        inputs = np.concatenate([rare, candidates[self._rng.integers(0, len(candidates), count - len(rare))]])
        products = self._run(index, programmed, inputs)
        shares = np.abs((products - inputs @ programmed.matrix.T) * self._weights[index]).max(axis=1)
        worst = inputs[np.argsort(-shares)[: self._settings.inputs // 4]]
        return worst, float(shares.max())

    def _run(self, index: int, programmed: ProgrammedMatrix, inputs: Array) -> Array:
        return run_tile(self._plan, index, programmed, inputs, self._runner)

    def _candidates(self, index: int) -> Array:
        part = self._plan.tiles[index]
        amplitudes = self._plan.layers[part.layer].amplitudes(self._signals[part.layer])
        return np.ascontiguousarray(amplitudes[:, part.cols])

    def _first_inputs(self, index: int) -> Array:
        return self._spread_inputs(index)[: self._settings.inputs]

    def _spread_inputs(self, index: int) -> Array:
        """Return inputs far from each other: first those of training, then rare ones for the check."""
        rare = self._settings.checked // 3
        return _spread(self._candidates(index), self._settings.inputs + rare)

    def _cell(self, index: int, known: LearningTwin, inputs: Array) -> Cell:
        task = CellTask(inputs, self._plan.tiles[index].matrix, self._weights[index])
        return Cell(task, self._dac, known, lambda programmed: self._run(index, programmed, inputs), self._rng)


def _signals(plan: TilePlan, inputs: Array) -> list[Array]:
    """Signals (m, in) before each layer of the ideal network."""
    found = [inputs]
    for layer in plan.network.layers[:-1]:
        found.append(layer.activate(found[-1] @ layer.weight.T + layer.bias))
    return found


def _weights(plan: TilePlan) -> list[Array]:
    """For each tile, the share of the slack that an error of 1 of each output uses up, where it hurts most."""
    shares = [
        (np.abs(part) / layer.slack[:, None]).max(axis=0)
        for layer, part in zip(plan.network.layers, plan.sensitivity, strict=True)
    ]
    stops = np.cumsum([part.shape[0] for part in plan.tiles])
    return np.split(np.max(shares, axis=0), stops[:-1])


def _spread(candidates: Array, count: int) -> Array:
    """Rows of (m, c) that are far from each other, each the furthest from those before."""
    chosen, distance = [0], np.full(len(candidates), np.inf)
    for _ in range(min(count, len(candidates)) - 1):
        distance = np.minimum(distance, ((candidates - candidates[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(np.argmax(distance)))
    return candidates[chosen]
