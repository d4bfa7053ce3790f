"""State of a training in one file, from which it goes on bit for bit."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from optinc_hw._files import replacing
from optinc_hw.errors import NetworkError

_FORMAT = "optinc-training/1"

State = dict[str, Tensor]


@dataclass
class TrainingState:
    """All that a training needs to go on.

    Parameters
    ----------
    epoch
        Epochs done.
    model, best
        Parameters and bases now, and of the best network so far.
    moments
        Adam's state of each parameter, by its number: ``"0.exp_avg"`` and so on.
    generator
        State of the random numbers.
    best_wrong, best_worst
        Wrong inputs and largest distance of an output of the best network.
    history
        (epoch, loss, wrong inputs, largest distance) of each look at the inputs.
    """

    epoch: int
    model: State
    best: State
    moments: State
    generator: Tensor
    best_wrong: int
    best_worst: float
    history: list[tuple[int, float, int, float]]

    def save(self, path: Path, settings: dict[str, Any]) -> None:
        """Write the state, at once or not at all."""
        tensors = {"generator": self.generator}
        for group in ("model", "best", "moments"):
            tensors |= {f"{group}/{name}": value.contiguous() for name, value in getattr(self, group).items()}
        about = {
            "epoch": self.epoch,
            "best_wrong": self.best_wrong,
            "best_worst": self.best_worst,
            "history": self.history,
            "settings": settings,
        }
        with replacing(path) as part:
            save_file(tensors, part, {"format": _FORMAT, "training": json.dumps(about)})

    @classmethod
    def load(cls, path: Path, settings: dict[str, Any]) -> "TrainingState":
        """Read a state of a training with the same settings.

        Raises
        ------
        NetworkError
            If the file cannot be read, is of another kind, or was written with other settings, which are named.
        """
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != _FORMAT:
                    raise NetworkError(f"{path} has format {metadata.get('format')!r}, expected {_FORMAT!r}")
                about = json.loads(metadata["training"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            if isinstance(error, NetworkError):
                raise
            raise NetworkError(f"{path} is no readable checkpoint of a training: {error}") from error
        wanted = json.loads(json.dumps(settings))
        for name, value in wanted.items():
            if about["settings"].get(name) != value:
                raise NetworkError(
                    f"{path} was written with {name} = {about['settings'].get(name)!r}, not {value!r}; resume with the "
                    "same settings, or begin anew with another file"
                )
        groups: dict[str, State] = {"model": {}, "best": {}, "moments": {}}
        for name, tensor in tensors.items():
            group, _, inner = name.partition("/")
            if inner:
                groups[group][inner] = tensor
        history = [(int(row[0]), float(row[1]), int(row[2]), float(row[3])) for row in about["history"]]
        return cls(
            about["epoch"], **groups, generator=tensors["generator"], best_wrong=about["best_wrong"],
            best_worst=about["best_worst"], history=history,
        )  # fmt: skip


def moments_of(optimizer: torch.optim.Adam) -> State:
    """Adam's state, flat."""
    state = optimizer.state_dict()["state"]
    return {f"{number}.{name}": value.clone() for number, values in state.items() for name, value in values.items()}


def put_moments(optimizer: torch.optim.Adam, moments: State) -> None:
    """Restore Adam's state."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in moments.items():
        number, _, inner = name.partition(".")
        state.setdefault(int(number), {})[inner] = value.clone()
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
