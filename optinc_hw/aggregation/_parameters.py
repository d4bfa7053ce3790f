"""Parameters by names that outlive buckets: DDP sorts its buckets anew after the first step."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from optinc_hw.errors import GradientError


class ParameterNames:
    """Names of parameters: given ones, or numbers in the order in which the hook first meets them.

    The numbers are the same in each run of a model, as the first step's buckets are.

    Parameters
    ----------
    named
        Names and parameters, as from ``module.named_parameters()``.

    Raises
    ------
    GradientError
        If a name is given twice.
    """

    def __init__(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._names: Any = WeakTensorKeyDictionary()  # torch gives it no types
        self._met = 0
        taken: set[str] = set()
        for name, parameter in named:
            if name in taken:
                raise GradientError(f"two parameters are named {name!r}")
            taken.add(name)
            self._names[parameter] = name

    def __getstate__(self) -> tuple[list[tuple[str, torch.Tensor]], int]:
        return [(name, parameter) for parameter, name in self._names.items()], self._met

    def __setstate__(self, state: tuple[list[tuple[str, torch.Tensor]], int]) -> None:
        named, met = state
        self.__init__(named)  # type: ignore[misc]
        self._met = met

    def of(self, parameter: torch.Tensor) -> str:
        """Return the name of a parameter."""
        if parameter not in self._names:
            self._names[parameter] = f"parameter_{self._met:05d}"
            self._met += 1
        name: str = self._names[parameter]
        return name
