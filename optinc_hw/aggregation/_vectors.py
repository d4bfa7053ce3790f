"""Tensors as the vectors that are quantised."""

import torch

from optinc_hw.aggregation._quantizer import Floats


def vector_of(tensor: torch.Tensor) -> Floats:
    """Return a tensor's values as flat float32 or float64; shares memory where it can."""
    wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    # Views such as the imaginary part of a conjugate carry a sign that NumPy does not know; resolve_neg applies it.
    array: Floats = tensor.detach().to("cpu", wide).resolve_neg().reshape(-1).numpy()
    return array
