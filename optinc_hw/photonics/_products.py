"""Products of complex matrices on the CPU: torch's, or on one thread those of kernels."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

_FEWEST = 32
"""Rows from which on a product with an adjoint, both of whose factors are packed, is quicker than torch's."""


def product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right`` without gradients, of matrices (n, k) and (k, w)."""
    if not _alone(left):
        return left @ right
    from optinc_hw.photonics import _product_kernels

    made = torch.empty(len(left), right.shape[1], dtype=left.dtype)
    _product_kernels.product(_numbers(left), _numbers(right), _numbers(made))
    return made


def product_adjoint(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right.mH`` without gradients, of matrices (n, k) and (m, k)."""
    if not _alone(left) or min(len(left), len(right)) < _FEWEST or left.dtype != torch.complex128:
        return left @ right.mH
    from optinc_hw.photonics import _product_kernels

    made = torch.empty(len(left), len(right), dtype=left.dtype)
    _product_kernels.product_adjoint(_numbers(left), _numbers(right), _numbers(made))
    return made


def _alone(left: Tensor) -> bool:
    """Whether kernels of one thread are the quicker ones: torch's products take as many as they may."""
    return torch.get_num_threads() == 1 and left.numel() > 0


def _numbers(value: Tensor) -> np.ndarray[Any, Any]:
    """Real and imaginary parts of a matrix (n, w) interleaved, (n, 2w)."""
    plain = value.detach().resolve_conj().resolve_neg().contiguous().numpy()
    return plain.view(plain.real.dtype)
