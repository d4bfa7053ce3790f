"""Error feedback: what quantisation dropped of each parameter's gradient."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from optinc_hw.aggregation._quantizer import Floats
from optinc_hw.errors import GradientError


class Residuals:
    """Residuals of one rank, by names of parameters.

    Those of a step are put aside and take the place of the older ones when the step has ended well.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Floats] = {}
        self._aside: dict[str, Floats] = {}

    def add_to(self, vector: Floats, names: Sequence[str], sizes: Sequence[int]) -> Floats:
        """Return the vector plus the residuals of its parameters, which lie one behind the other.

        A gradient of nothing but zeros stays as it is: DDP sends zeros for a parameter that was not used, and drops
        the mean.

        Raises
        ------
        GradientError
            If a parameter changed its size or type since its residual was kept.
        """
        corrected = vector.copy()
        for name, part in zip(names, _parts(corrected, sizes), strict=True):
            residual = self._kept.get(name)
            if residual is None or not part.any():
                continue
            if residual.shape != part.shape or residual.dtype != part.dtype:
                raise GradientError(
                    f"the residual of {name} has {residual.size} values of {residual.dtype}, its gradient {part.size} "
                    f"of {part.dtype}; the state belongs to another model, or parameters need names (see OptincState)"
                )
            part += residual
        return corrected

    def put_aside(self, raw: Floats, dropped: Floats, names: Sequence[str], sizes: Sequence[int]) -> None:
        """Put ``dropped`` aside where it is finite and the raw gradient of the parameter is not all zeros."""
        for name, gradient, part in zip(names, _parts(raw, sizes), _parts(dropped, sizes), strict=True):
            if not gradient.any():
                continue
            finite = np.isfinite(part)
            old = self._kept.get(name)
            self._aside[name] = np.where(finite, part, 0.0 if old is None else old).astype(part.dtype)

    def end_step(self, *, keep: bool) -> None:
        """Keep what was put aside since the last call, or forget it."""
        aside, self._aside = self._aside, {}
        if keep:
            self._kept.update(aside)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of the residuals as tensors."""
        return {name: torch.from_numpy(residual.copy()) for name, residual in self._kept.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Replace all residuals.

        Raises
        ------
        GradientError
            If one is no vector of finite floating-point numbers; nothing is changed then.
        """
        loaded: dict[str, Floats] = {}
        for name, tensor in state.items():
            vector = tensor.detach().cpu().numpy().copy()
            if vector.ndim != 1 or vector.dtype not in (np.float32, np.float64) or not np.isfinite(vector).all():
                raise GradientError(f"the residual of {name} is no vector of finite numbers; the checkpoint is damaged")
            loaded[name] = vector
        self._kept, self._aside = loaded, {}


def _parts(vector: Floats, sizes: Sequence[int]) -> list[Floats]:
    return np.split(vector, np.cumsum(sizes)[:-1]) if len(sizes) else []
