"""Real training, twice: gradients averaged by an executor, and averaged in floating point."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from optinc_hw.aggregation import Aggregator, Executor
from optinc_hw.errors import ConfigurationError

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total)."""
Averager = Callable[[list[list[Tensor]]], list[Tensor]]
"""Averages the workers' lists of gradients."""

WORKERS = 4
HIDDEN_UNITS = 64
EPOCHS = 25
BATCH_PER_WORKER = 32
LEARNING_RATE = 0.1
MOMENTUM = 0.9
TEST_SAMPLES = 450
SAMPLED_STEP = 20
"""Step of the first optical run whose gradients are kept for the bench: training is under way, nothing has settled."""


@dataclass(frozen=True, eq=False)
class Digits:
    """The digits data set of scikit-learn, cut into training and test part.

    Parameters
    ----------
    train_images, test_images
        Pixels (samples, 64) float32 in 0..1.
    train_labels, test_labels
        Digits (samples,) int64.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """One training run.

    Parameters
    ----------
    seed
        Seed of initial weights and data order.
    loss
        Mean training loss (steps,) of the workers' batches, in nat.
    accuracy
        Share of the test samples classified correctly, (epochs + 1,): before training and after each epoch.
    sampled_gradients
        Gradients (workers, parameters) of one step, for the bench; None unless they were asked for.
    """

    seed: int
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    sampled_gradients: Tensor | None = None


@dataclass(frozen=True, eq=False)
class TrainingComparison:
    """Training runs with optical and with float averaging; equal seeds start from equal weights and see equal batches.

    Parameters
    ----------
    optical, float_
        One run a seed, in the same order.
    """

    optical: tuple[TrainingRun, ...]
    float_: tuple[TrainingRun, ...]

    @property
    def sampled_gradients(self) -> Tensor:
        """Gradients (workers, parameters) of one step of the first optical run."""
        gradients = self.optical[0].sampled_gradients
        if gradients is None:
            raise ConfigurationError("the first optical run kept no gradients; run compare_training")
        return gradients


def load_digits() -> Digits:
    """Load the digits that come with scikit-learn; the last samples are the test part.

    Raises
    ------
    ConfigurationError
        If scikit-learn is not installed.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ConfigurationError(
            "the demo trains on the digits that come with scikit-learn, which is not installed; "
            "run: pip install 'optinc-hw[demo]'"
        ) from error
    data = datasets.load_digits()
    # The set is ordered by writer: mix it, always in the same way, so that the test part has all of them.
    order = np.random.default_rng(0).permutation(len(data.target))
    images = torch.as_tensor(data.data[order] / 16.0, dtype=torch.float32)
    labels = torch.as_tensor(data.target[order], dtype=torch.int64)
    split = len(labels) - TEST_SAMPLES
    return Digits(images[:split], labels[:split], images[split:], labels[split:])


def compare_training(
    executor: Executor, seeds: Sequence[int], *, epochs: int = EPOCHS, progress: Progress | None = None
) -> TrainingComparison:
    """Train the same small network with optical and with float averaging of every step's gradients.

    Parameters
    ----------
    executor
        Averages the gradients of `WORKERS` servers.
    seeds
        One pair of runs each: initial weights and data order.
    epochs
        Passes through the training part.
    progress
        Called with (stage, runs done, runs in all).

    Raises
    ------
    ConfigurationError
        If scikit-learn is not installed, or there are no seeds or too few epochs to reach the sampled step.
    GradientError
        If the executor is for another number of workers.
    """
    digits = load_digits()
    steps = epochs * steps_per_epoch(digits)
    if not seeds or steps <= SAMPLED_STEP:
        raise ConfigurationError(
            f"{len(seeds)} seeds and {epochs} epochs ({steps} steps): at least one seed and {SAMPLED_STEP + 1} steps "
            "are needed"
        )
    optical: list[TrainingRun] = []
    reference: list[TrainingRun] = []
    tell = progress or _silent
    tell("training", 0, 2 * len(seeds))
    with one_thread():
        for seed in seeds:
            sampled = None if optical else SAMPLED_STEP
            optical.append(_train(digits, Aggregator(executor).mean_lists, seed, epochs, sampled))
            tell("training", 2 * len(optical) - 1, 2 * len(seeds))
            reference.append(_train(digits, float_mean, seed, epochs, None))
            tell("training", 2 * len(optical), 2 * len(seeds))
    return TrainingComparison(tuple(optical), tuple(reference))


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: on small tensors and busy cores two are far slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def steps_per_epoch(digits: Digits) -> int:
    """Whole batches of all workers in the training part."""
    return len(digits.train_labels) // (WORKERS * BATCH_PER_WORKER)


def float_mean(workers: list[list[Tensor]]) -> list[Tensor]:
    """Average the workers' gradients in floating point: the reference."""
    return [torch.stack(tensors).mean(dim=0) for tensors in zip(*workers, strict=True)]


def _silent(stage: str, done: int, total: int) -> None:
    del stage, done, total


def _network(seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(64, HIDDEN_UNITS), nn.ReLU(), nn.Linear(HIDDEN_UNITS, 10))


def _train(digits: Digits, average: Averager, seed: int, epochs: int, sampled_step: int | None) -> TrainingRun:
    model = _network(seed)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
    criterion = nn.CrossEntropyLoss()
    order = np.random.default_rng(seed)
    steps = steps_per_epoch(digits)
    losses: list[float] = []
    accuracies = [_accuracy(model, digits)]
    sampled: Tensor | None = None
    for _ in range(epochs):
        mixed = torch.as_tensor(order.permutation(len(digits.train_labels)))
        batches = mixed[: steps * WORKERS * BATCH_PER_WORKER].reshape(steps, WORKERS, BATCH_PER_WORKER)
        for batch in batches:
            workers, step_losses = [], []
            for places in batch:
                loss = criterion(model(digits.train_images[places]), digits.train_labels[places])
                workers.append(list(torch.autograd.grad(loss, parameters)))
                step_losses.append(float(loss.detach()))
            if len(losses) == sampled_step:
                sampled = torch.stack([torch.cat([tensor.reshape(-1) for tensor in tensors]) for tensors in workers])
            for parameter, mean in zip(parameters, average(workers), strict=True):
                parameter.grad = mean
            optimizer.step()
            losses.append(float(np.mean(step_losses)))
        accuracies.append(_accuracy(model, digits))
    return TrainingRun(seed, np.array(losses), np.array(accuracies), sampled)


def _accuracy(model: nn.Module, digits: Digits) -> float:
    with torch.no_grad():
        answers = model(digits.test_images).argmax(dim=1)
    return float((answers == digits.test_labels).double().mean())
