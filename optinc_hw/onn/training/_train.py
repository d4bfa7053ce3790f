"""Training of networks in blocks ``Sigma U`` on every input that unit P can give them."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from optinc_hw.errors import NetworkError
from optinc_hw.onn._checks import Rounding, check_rounding, whole_number
from optinc_hw.onn._codec import encode_pam4
from optinc_hw.onn._enumeration import exact_means
from optinc_hw.onn._network import Layer, OpticalNetwork
from optinc_hw.onn._space import InputSpace
from optinc_hw.onn.training._checkpoint import TrainingState, moments_of, put_moments
from optinc_hw.onn.training._manifold import SigmaUNetwork

_LOOK_EPOCHS = 10
"""Epochs between two looks at all inputs; matrices get a new base then."""
_LOOK_INPUTS = 1 << 20
"""Most inputs of a look; larger spaces are sampled."""
_CHUNK = 1 << 15

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained.

    Parameters
    ----------
    sizes
        Signals before the first and after each layer.
    epochs
        Passes over the inputs; the rate falls to 0 over them as half a cosine.
    batch
        Inputs of a step.
    rate
        First learning rate of Adam.
    squares
        Part of the epochs in which the squared error of the levels is lowered; after them only what lies further from
        its level than half a level less ``margin``.
    margin
        Distance from the decision threshold that is aimed at, in level distances below 0.5.
    enough
        Margin at which training ends; None for none.
    noise
        Relative standard deviation of noise on what each layer is given: in the second part, and in every look at all
        inputs, which draws the same each time.
    inputs_per_epoch
        Inputs drawn for each epoch from spaces that have more.
    seed
        Of first weights, order of inputs and noise.

    Raises
    ------
    NetworkError
        If a value is out of range.
    """

    sizes: tuple[int, ...]
    epochs: int = 600
    batch: int = 1024
    rate: float = 5e-3
    squares: float = 0.5
    margin: float = 0.45
    enough: float | None = 0.42
    noise: float = 0.0
    inputs_per_epoch: int = 1 << 17
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or not all(whole_number(size, 1) for size in self.sizes):
            raise NetworkError(f"sizes must be at least two integers of at least 1, got {self.sizes!r}")
        for name in ("epochs", "batch", "inputs_per_epoch"):
            if not whole_number(getattr(self, name), 1):
                raise NetworkError(f"{name} must be an integer of at least 1, got {getattr(self, name)!r}")
        for name, low, high in (
            ("rate", 0.0, 1.0), ("squares", 0.0, 1.0), ("margin", 0.0, 0.5), ("enough", 0.0, 0.5), ("noise", 0.0, 1.0),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise NetworkError(f"{name} must lie between {low:g} and {high:g}, got {value!r}")


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """Result of a training.

    Parameters
    ----------
    network
        The best network, float64, every layer in blocks ``Sigma U``; its margin is that of the looks (0 if some
        input is wrong): `enumerate_inputs` tells the truth about spaces that were sampled.
    epochs
        Epochs done.
    history
        (epoch, loss, wrong inputs, largest distance of an output from its level) of each look.
    """

    network: OpticalNetwork
    epochs: int
    history: tuple[tuple[int, float, int, float], ...]


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
    """Train a network of ReLUs on the manifold of blocks ``Sigma U``.

    Parameters
    ----------
    space
        Servers, bits and inputs of the network.
    settings
        How to train.
    rounding
        Rule of the mean.
    start
        Network to start from, all of its layers in blocks (`widen_to_sigma_u` of a network of ReLUs); None starts from
        random orthogonal blocks.
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
    return _Training(space, settings, rounding, start).run(checkpoint, resume, progress)


class _Training:
    """One training: network, optimiser and inputs."""

    def __init__(
        self, space: InputSpace, settings: TrainingSettings, rounding: Rounding, start: OpticalNetwork | None
    ) -> None:
        symbols = len(encode_pam4(0, space.bits))
        if (settings.sizes[0], settings.sizes[-1]) != (space.inputs, symbols):
            raise NetworkError(
                f"sizes {settings.sizes} must begin with {space.inputs} inputs and end with {symbols} symbols"
            )
        self.space, self.settings, self.rounding = space, settings, rounding
        self.generator = torch.Generator().manual_seed(settings.seed)
        half = np.full(space.inputs, max(space.maxima) / 2.0)
        self.network = SigmaUNetwork(settings.sizes, half, self.generator)
        self.start = None if start is None else _digest(start)
        if start is not None:
            _load(self.network, start, settings.sizes)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=settings.rate)

    def run(self, checkpoint: Path | None, resume: bool, progress: Progress | None) -> TrainedNetwork:
        described = asdict(self.settings) | {
            "servers": self.space.servers, "bits": self.space.bits, "inputs": self.space.inputs,
            "rounding": self.rounding, "start": self.start,
        }  # fmt: skip
        if resume:
            if checkpoint is None:
                raise NetworkError("to resume, name the checkpoint")
            state = self._restored(TrainingState.load(checkpoint, described))
        else:
            state = self._first()
        while state.epoch < self.settings.epochs and not self._finished(state):
            upto = min(state.epoch + _LOOK_EPOCHS, self.settings.epochs)
            loss = math.nan
            for epoch in range(state.epoch, upto):
                loss = self._epoch(epoch)
            for layer in self.network.parts:
                layer.rebase()
            state.epoch = upto
            self._look(state, loss)
            if checkpoint is not None:
                state.save(checkpoint, described)
            if progress is not None:
                progress("training", upto, self.settings.epochs)
        self.network.load_state_dict(state.best)
        return TrainedNetwork(self._result(state), state.epoch, tuple(state.history))

    def _first(self) -> TrainingState:
        state = TrainingState(0, {}, {}, {}, self.generator.get_state(), self.space.size + 1, math.inf, [])
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
        if self.space.size <= settings.inputs_per_epoch:
            order = torch.randperm(self.space.size, generator=self.generator)
        else:
            order = torch.randint(self.space.size, (settings.inputs_per_epoch,), generator=self.generator)
        loss = torch.zeros(())
        for index in torch.split(order, settings.batch):
            averages, levels = self._examples(index.numpy())
            outputs = self.network(averages, settings.noise if late else 0.0, self.generator)
            away = outputs - levels
            beyond = torch.relu(away.abs() - (0.5 - settings.margin)) if late else away
            loss = (beyond**2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return float(loss.detach())

    def _examples(self, index: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        sums = self.space.sums(index)
        levels = encode_pam4(exact_means(sums, self.space, self.rounding), self.space.bits)
        return torch.from_numpy(sums / self.space.servers).float(), torch.from_numpy(levels).float()

    @torch.no_grad()
    def _look(self, state: TrainingState, loss: float) -> None:
        """Judge the network on the inputs, and keep it if it is the best."""
        wrong, worst, same = 0, 0.0, torch.Generator().manual_seed(self.settings.seed)
        stride = -(-self.space.size // _LOOK_INPUTS)
        index = np.arange(state.epoch % stride, self.space.size, stride)
        for start in range(0, len(index), _CHUNK):
            averages, levels = self._examples(index[start : start + _CHUNK])
            away = (self.network(averages, self.settings.noise, same) - levels).abs().amax(dim=1)
            wrong += int((away >= 0.5).sum())
            worst = max(worst, float(away.max()))
        state.model = {name: value.clone() for name, value in self.network.state_dict().items()}
        state.moments, state.generator = moments_of(self.optimizer), self.generator.get_state()
        if (wrong, worst) < (state.best_wrong, state.best_worst):
            state.best = {name: value.clone() for name, value in state.model.items()}
            state.best_wrong, state.best_worst = wrong, worst
        if not math.isnan(loss):
            state.history.append((state.epoch, loss, wrong, worst))

    def _result(self, state: TrainingState) -> OpticalNetwork:
        """Network in float64, with the ranges that its signals have."""
        matrices = [layer.exact_weight() for layer in self.network.parts]
        biases = [layer.bias.detach().double().numpy() for layer in self.network.parts]
        middle = float(self.network.middle[0])
        biases[0] = biases[0] - matrices[0].sum(axis=1)
        matrices[0] = matrices[0] / middle
        highs = self._highs(matrices, biases)
        layers = []
        for number, (weight, bias, high) in enumerate(zip(matrices, biases, highs, strict=True)):
            last = number == len(matrices) - 1
            layers.append(
                Layer(
                    weight=weight,
                    bias=bias,
                    activation=("linear" if last else "relu",) * len(bias),
                    low=np.zeros(len(high)),
                    high=high,
                    step=np.full(len(high), 0.0 if number else 1.0 / self.space.servers),
                    slack=np.full(len(bias), 0.5 if last else np.inf),
                )
            )
        margin = 0.0 if state.best_wrong else 0.5 - state.best_worst
        return OpticalNetwork(self.space.servers, self.space.bits, self.rounding, tuple(layers), margin)

    def _highs(
        self, matrices: list[NDArray[np.float64]], biases: list[NDArray[np.float64]]
    ) -> list[NDArray[np.float64]]:
        """Largest value of every signal before each layer, over at most some million inputs."""
        highs = [np.array(self.space.maxima, dtype=np.float64), *(np.zeros(len(bias)) for bias in biases[:-1])]
        stride = -(-self.space.size // _LOOK_INPUTS)
        for start in range(0, self.space.size, stride * _CHUNK):
            stop = min(start + stride * _CHUNK, self.space.size)
            signals = self.space.averages(np.arange(start, stop, stride))
            for number in range(len(matrices) - 1):
                signals = np.maximum(signals @ matrices[number].T + biases[number], 0.0)
                highs[number + 1] = np.maximum(highs[number + 1], signals.max(axis=0))
        return highs


def _digest(network: OpticalNetwork) -> str:
    """Short name of a network's weights and biases."""
    content = b"".join(values.tobytes() for layer in network.layers for values in (layer.weight, layer.bias))
    return hashlib.sha256(content).hexdigest()[:16]


def _load(network: SigmaUNetwork, start: OpticalNetwork, sizes: tuple[int, ...]) -> None:
    """Put a network in blocks into the parameters."""
    from optinc_hw.photonics import realise

    if start.sizes != tuple(sizes):
        raise NetworkError(f"the start has sizes {start.sizes}, the settings {tuple(sizes)}; they must be the same")
    middle = float(network.middle[0])
    for number, (layer, made) in enumerate(zip(start.layers, network.parts, strict=True)):
        hidden = number < len(start.layers) - 1
        if hidden and set(layer.activation) != {"relu"}:
            raise NetworkError(f"layer {number} of the start has units other than ReLUs; build it with unit='relu'")
        found = realise(layer.weight, "sigma_u")
        if found.residual > 1e-9:
            raise NetworkError(
                f"layer {number} of the start is off blocks Sigma U by {found.residual:.1e}; see widen_to_sigma_u"
            )
        scale = found.scale * (1.0 if number else middle)
        bias = layer.bias if number else layer.bias + middle * layer.weight.sum(axis=1)
        made.load(scale * found.sigma, found.blocks, bias)


def provenance(settings: TrainingSettings, trained: TrainedNetwork, start: str) -> dict[str, Any]:
    """Tell how a network was trained, for `save_network`."""
    return {
        "made by": "optinc_hw.onn.training.train_network",
        "start": start,
        "settings": asdict(settings),
        "epochs": trained.epochs,
        "torch": torch.__version__,
    }
