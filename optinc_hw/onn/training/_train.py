"""Training of networks and cells on every input that they can have."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from optinc_hw.errors import NetworkError
from optinc_hw.onn._cells import Cell, CellSpace, check_cell_sizes, check_divisor
from optinc_hw.onn._checks import Rounding, check_rounding, symbol_count
from optinc_hw.onn._composition import prove_composition
from optinc_hw.onn._network import Activation, Layer, OpticalNetwork
from optinc_hw.onn._space import InputSpace
from optinc_hw.onn.training._checkpoint import TrainingState, moments_of, put_moments
from optinc_hw.onn.training._examples import CellExamples, Examples, SpaceExamples
from optinc_hw.onn.training._layers import DenseLayer, TrainableNetwork
from optinc_hw.onn.training._settings import TrainingSettings
from optinc_hw.photonics import realise

_MOMENTS = (0.9, 0.99)
"""Adam's decay rates; with 0.999 for the squares the loss leaps up now and then, and small margins are left."""

_NONE_YET = 1 << 62
"""Wrong inputs of the best network before there is one."""

Progress = Callable[[str, int, int], None]
History = tuple[tuple[int, float, int, float], ...]


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """Result of a training.

    Parameters
    ----------
    network
        The best network, float64; its margin is that of the looks (0 if some input is wrong): `enumerate_inputs` tells
        the truth about spaces that were sampled.
    epochs
        Epochs done.
    history
        (epoch, loss, wrong inputs, largest distance of an output from its level) of each look.
    """

    network: OpticalNetwork
    epochs: int
    history: History


@dataclass(frozen=True, eq=False)
class TrainedCell:
    """Result of the training of a cell.

    Parameters
    ----------
    cell
        The best cell, float64; its margin is the proved one, see `prove_composition`.
    epochs
        Epochs done.
    history
        (epoch, loss, wrong inputs, largest distance of an output from its level, in distances of levels) of each look.
    """

    cell: Cell
    epochs: int
    history: History


def train_network(
    space: InputSpace,
    settings: TrainingSettings,
    rounding: Rounding = "half_up",
    *,
    start: OpticalNetwork | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> TrainedNetwork:
    """Train a network of ReLUs.

    Parameters
    ----------
    space
        Servers, bits and inputs of the network.
    settings
        How to train.
    rounding
        Rule of the mean.
    start
        Network to start from, unless the method is ``"free"`` with all of its layers in blocks (`widen_to_sigma_u` of a
        network of ReLUs); None starts from random matrices.
    checkpoint
        File that the state is written to at every look.
    resume
        Go on from ``checkpoint``: on the same machine bit for bit as if never interrupted.
    progress
        Called with a stage, epochs done and in all.

    Raises
    ------
    NetworkError
        If sizes do not fit the space, the start does not fit the sizes or is not in blocks, or the checkpoint does not
        fit.
    """
    check_rounding(rounding)
    ends = space.inputs, symbol_count(space.bits)
    if (settings.sizes[0], settings.sizes[-1]) != ends:
        raise NetworkError(f"sizes {settings.sizes} must begin with {ends[0]} inputs and end with {ends[1]} symbols")
    training = _Training(SpaceExamples(space, rounding), settings, None if start is None else start.layers)
    state = training.run(checkpoint, resume, progress)
    margin = 0.0 if state.best_wrong else 0.5 - state.best_worst
    network = OpticalNetwork(space.servers, space.bits, rounding, training.layers(), margin)
    return TrainedNetwork(network, state.epoch, tuple(state.history))


def train_cell(
    divisor: int,
    settings: TrainingSettings,
    *,
    digits: int = 1,
    start: Cell | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> TrainedCell:
    """Train a cell of ReLUs, for chains of any length (`CellChain`).

    Parameters
    ----------
    divisor, digits
        See `Cell`.
    settings
        How to train. ``jitter`` should exceed the carry's error at the end, ``0.5 - margin``.
    start
        Cell to start from, as for `train_network`.
    checkpoint, resume, progress
        See `train_network`.

    Raises
    ------
    NetworkError
        If the divisor is no power of 4, sizes do not fit the digits, or start or checkpoint do not fit.
    """
    check_divisor(divisor)
    check_cell_sizes(settings.sizes, digits)
    examples = CellExamples(CellSpace(divisor, digits), settings.jitter)
    training = _Training(examples, settings, None if start is None else start.layers)
    state = training.run(checkpoint, resume, progress)
    cell = Cell(divisor, digits, training.layers())
    cell = replace(cell, margin=prove_composition(cell, 64 if digits == 1 else 16).margin)
    return TrainedCell(cell, state.epoch, tuple(state.history))


class _Training:
    """One training: network, optimiser and examples."""

    def __init__(self, examples: Examples, settings: TrainingSettings, start: Sequence[Layer] | None) -> None:
        self.examples, self.settings = examples, settings
        self.generator = torch.Generator().manual_seed(settings.seed)
        middle = float(examples.high.max()) / 2.0
        self.network = TrainableNetwork(settings.sizes, middle, self.generator, settings.method)
        self.start = None if start is None else _digest(start)
        if start is not None:
            _load(self.network, start, settings)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=settings.rate, betas=_MOMENTS, fused=True)
        self.levels = torch.from_numpy(examples.output_steps).float()
        places = 4.0 ** -torch.arange(len(self.levels))
        self.place_values = places * (len(places) / places.sum())

    def run(self, checkpoint: Path | None, resume: bool, progress: Progress | None) -> TrainingState:
        """Train, and leave the best parameters in the network."""
        described = asdict(self.settings) | self.examples.described | {"start": self.start}
        if resume:
            if checkpoint is None:
                raise NetworkError("to resume, name the checkpoint")
            state = self._restored(TrainingState.load(checkpoint, described))
        else:
            state = self._first()
        while state.epoch < self.settings.epochs and not self._finished(state):
            upto = min(state.epoch + self.settings.look_epochs, self.settings.epochs)
            loss = math.nan
            for epoch in range(state.epoch, upto):
                loss = self._epoch(epoch)
            for layer in self.network.parts:
                layer.settle()
            state.epoch = upto
            self._look(state, loss)
            if checkpoint is not None:
                state.save(checkpoint, described)
            if progress is not None:
                progress("training", upto, self.settings.epochs)
        self.network.load_state_dict(state.best)
        return state

    def _first(self) -> TrainingState:
        state = TrainingState(0, {}, {}, {}, self.generator.get_state(), _NONE_YET, math.inf, [])
        for layer in self.network.parts:
            layer.settle()
        self._look(state, math.nan)
        return state

    def _restored(self, state: TrainingState) -> TrainingState:
        self.network.load_state_dict(state.model)
        put_moments(self.optimizer, state.moments)
        self.generator.set_state(state.generator)
        return state

    def _finished(self, state: TrainingState) -> bool:
        enough = self.settings.enough
        return enough is not None and state.best_wrong == 0 and 0.5 - state.best_worst >= enough

    def _epoch(self, epoch: int) -> float:
        """Pass over the inputs once; returns the last loss."""
        settings, late = self.settings, epoch >= self.settings.squares * self.settings.epochs
        for group in self.optimizer.param_groups:
            group["lr"] = 0.5 * settings.rate * (1.0 + math.cos(math.pi * epoch / settings.epochs))
        if self.examples.size <= settings.inputs_per_epoch:
            order = torch.randperm(self.examples.size, generator=self.generator)
        else:
            order = torch.randint(self.examples.size, (settings.inputs_per_epoch,), generator=self.generator)
        loss = torch.zeros(())
        for index in torch.split(order, settings.batch):
            inputs, levels = self.examples.draw(index.numpy(), self.generator)
            outputs = self.network(_single(inputs), settings.noise if late else 0.0, self.generator)
            loss = self._loss((outputs - _single(levels)) / self.levels, late)
            if settings.spectral:
                loss = loss + settings.spectral * (self.network.spectral_norms() ** 2).mean()
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
            self.optimizer.step()
        return float(loss.detach())

    def _loss(self, away: Tensor, late: bool) -> Tensor:
        """Loss of distances (batch, outputs) from the levels, in distances of these."""
        if self.settings.loss == "two_stage":
            number: Tensor = ((away * self.place_values).sum(dim=1) ** 2).mean()
            return number if late else (self.place_values * away**2).mean()
        beyond = torch.relu(away.abs() - (0.5 - self.settings.margin)) if late else away
        return (beyond**2).mean()

    @torch.no_grad()
    def _look(self, state: TrainingState, loss: float) -> None:
        """Judge the network on the inputs, and keep it if it is the best."""
        wrong, worst, same = 0, 0.0, torch.Generator().manual_seed(self.settings.seed)
        for inputs, levels in self.examples.looks(state.epoch):
            outputs = self.network(_single(inputs), self.settings.noise, same)
            away = ((outputs - _single(levels)) / self.levels).abs().amax(dim=1)
            wrong += int((away >= 0.5).sum())
            worst = max(worst, float(away.max()))
        state.model = {name: value.clone() for name, value in self.network.state_dict().items()}
        state.moments, state.generator = moments_of(self.optimizer), self.generator.get_state()
        if (wrong, worst) < (state.best_wrong, state.best_worst):
            state.best = {name: value.clone() for name, value in state.model.items()}
            state.best_wrong, state.best_worst = wrong, worst
        if not math.isnan(loss):
            state.history.append((state.epoch, loss, wrong, worst))

    def layers(self) -> tuple[Layer, ...]:
        """Layers in float64, with the ranges that their signals have."""
        matrices = [layer.exact_weight() for layer in self.network.parts]
        biases = [layer.bias.detach().double().numpy() for layer in self.network.parts]
        biases[0] = biases[0] - matrices[0].sum(axis=1)
        matrices[0] = matrices[0] / float(self.network.middle)
        ends = list(zip(matrices, biases, self._highs(matrices, biases), strict=True))
        made = [
            _layer(weight, bias, high, np.full(len(high), 0.0) if number else self.examples.input_steps)
            for number, (weight, bias, high) in enumerate(ends)
        ]
        linear: tuple[Activation, ...] = ("linear",)
        last = replace(made[-1], activation=linear * len(biases[-1]), slack=0.5 * self.examples.output_steps)
        return (*made[:-1], last)

    def _highs(
        self, matrices: list[NDArray[np.float64]], biases: list[NDArray[np.float64]]
    ) -> Iterator[NDArray[np.float64]]:
        """Largest value of every signal before each layer, over the inputs of a look."""
        highs = [self.examples.high, *(np.zeros(len(bias)) for bias in biases[:-1])]
        for signals, _ in self.examples.looks(0):
            for number in range(len(matrices) - 1):
                signals = np.maximum(signals @ matrices[number].T + biases[number], 0.0)
                highs[number + 1] = np.maximum(highs[number + 1], signals.max(axis=0))
        return iter(highs)


def _single(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(values).float()


def _layer(
    weight: NDArray[np.float64], bias: NDArray[np.float64], high: NDArray[np.float64], step: NDArray[np.float64]
) -> Layer:
    relu: tuple[Activation, ...] = ("relu",)
    return Layer(weight, bias, relu * len(bias), np.zeros(len(high)), high, step, np.full(len(bias), np.inf))


def _digest(layers: Sequence[Layer]) -> str:
    """Short name of weights and biases."""
    content = b"".join(values.tobytes() for layer in layers for values in (layer.weight, layer.bias))
    return hashlib.sha256(content).hexdigest()[:16]


def _load(network: TrainableNetwork, start: Sequence[Layer], settings: TrainingSettings) -> None:
    """Put layers into the parameters."""
    sizes = (start[0].weight.shape[1], *(len(layer.bias) for layer in start))
    if sizes != tuple(settings.sizes):
        raise NetworkError(f"the start has sizes {sizes}, the settings {tuple(settings.sizes)}; they must be the same")
    middle = float(network.middle)
    for number, (layer, made) in enumerate(zip(start, network.parts, strict=True)):
        if number < len(start) - 1 and set(layer.activation) != {"relu"}:
            raise NetworkError(f"layer {number} of the start has units other than ReLUs; build it with unit='relu'")
        scale = 1.0 if number else middle
        bias = layer.bias if number else layer.bias + middle * layer.weight.sum(axis=1)
        if isinstance(made, DenseLayer):
            made.load(scale * layer.weight, bias)
            continue
        found = realise(layer.weight, "sigma_u")
        if found.residual > 1e-9:
            raise NetworkError(
                f"layer {number} of the start is off blocks Sigma U by {found.residual:.1e}; see widen_to_sigma_u"
            )
        made.load(scale * found.scale * found.sigma, found.blocks, bias)


def provenance(settings: TrainingSettings, trained: TrainedNetwork | TrainedCell, start: str) -> dict[str, Any]:
    """Tell how a network or a cell was trained, for `save_network`."""
    return {
        "made by": f"optinc_hw.onn.training.{'train_cell' if isinstance(trained, TrainedCell) else 'train_network'}",
        "start": start,
        "settings": asdict(settings),
        "epochs": trained.epochs,
        "torch": torch.__version__,
    }
