"""Parameters by names that outlive buckets: DDP sorts its buckets anew after the first step."""

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from optinc_hw.errors import GradientError

_NUMBER = re.compile(r"parameter_\d{5,}")


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
        self._given = taken
        for name, parameter in named:
            if name in taken:
                raise GradientError(f"two parameters are named {name!r}")
            taken.add(name)
            self._names[parameter] = name

    def __getstate__(self) -> tuple[list[tuple[str, torch.Tensor]], set[str], int]:
        return [(name, parameter) for parameter, name in self._names.items()], self._given, self._met

    def __setstate__(self, state: tuple[list[tuple[str, torch.Tensor]], set[str], int]) -> None:
        named, given, met = state
        self.__init__(named)  # type: ignore[misc]
        self._given, self._met = given, met

    def check(self, names: Iterable[str]) -> None:
        """Refuse names that no parameter has or can get.

        Raises
        ------
        GradientError
            If one is not among the given ones or, without those, no number.
        """
        unknown = [name for name in names if not (name in self._given if self._given else _NUMBER.fullmatch(name))]
        if unknown:
            own = f"such as {min(self._given)}" if self._given else "numbers such as parameter_00000"
            raise GradientError(
                f"the state holds residuals of {len(unknown)} unknown parameters, such as {min(unknown)}; the names "
                f"here are {own}: give OptincState the same named_parameters() as when the state was saved, of the "
                "wrapped or of the bare module"
            )

    def of(self, parameter: torch.Tensor) -> str:
        """Return the name of a parameter."""
        if parameter not in self._names:
            self._names[parameter] = f"parameter_{self._met:05d}"
            self._met += 1
        name: str = self._names[parameter]
        return name
