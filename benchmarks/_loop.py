"""Torch loops over the columns of a mesh, differentiated by autograd: what the engine is measured against."""

from collections.abc import Callable

import torch
from torch import Tensor

from optinc_hw.photonics import MeshLayout

Column = tuple[slice, int, int]  # its MZIs, its first mode, the mode after its last


def plain_apply(layout: MeshLayout) -> Callable[..., Tensor]:
    """Return the loop as it is usually written, with the arguments of `MeshModel.apply`: any leading batch axes."""
    columns = full_columns(layout)

    def apply(theta: Tensor, phi: Tensor, output: Tensor, fields: Tensor) -> Tensor:
        external, common = torch.exp(1j * phi), 1j * torch.exp(0.5j * theta)
        sine, cosine = common * torch.sin(0.5 * theta), common * torch.cos(0.5 * theta)
        cells = (part.unsqueeze(-1) for part in (external * sine, cosine, external * cosine, -sine))
        t00, t01, t10, t11 = cells
        for mzis, first, last in columns:
            upper, lower = fields[..., first:last:2, :], fields[..., first + 1 : last : 2, :]
            above = t00[..., mzis, :] * upper + t01[..., mzis, :] * lower
            below = t10[..., mzis, :] * upper + t11[..., mzis, :] * lower
            mixed = torch.stack((above, below), -2).flatten(-3, -2)
            fields = torch.cat((fields[..., :first, :], mixed, fields[..., last:, :]), -2)
        return torch.exp(1j * output).unsqueeze(-1) * fields

    return apply


def loop_apply(layout: MeshLayout) -> Callable[..., Tensor]:
    """Return the leanest loop that was found, with the arguments of `MeshModel.apply`.

    They are ``theta`` and ``phi`` (K,), ``output`` (n,) and ``fields`` (n, w), or with settings leading and one vector
    for each: (B, K), (B, n) and (B, n, 1).
    """
    columns = full_columns(layout)

    def apply(theta: Tensor, phi: Tensor, output: Tensor, fields: Tensor) -> Tensor:
        if theta.ndim == 1:
            return propagate(columns, theta[:, None], phi[:, None], output[:, None], fields)
        settings_last = (part.mT.contiguous() for part in (theta, phi, output, fields[..., 0]))
        return propagate(columns, *settings_last).mT[..., None]

    return apply


def full_columns(layout: MeshLayout) -> list[Column]:
    """Columns of a layout whose columns hold MZIs side by side without gaps, as in a rectangular mesh."""
    columns = []
    for members in filter(None, layout.columns):
        first = int(layout.modes[members[0]])
        columns.append((slice(members[0], members[-1] + 1), first, first + 2 * len(members)))
    return columns


def propagate(columns: list[Column], theta: Tensor, phi: Tensor, output: Tensor, fields: Tensor) -> Tensor:
    """Send fields through an ideal mesh.

    Parameters
    ----------
    columns
        From `full_columns`.
    theta, phi
        ``(K, S)`` real: one setting (S = 1) for all fields, or one for each.
    output
        ``(n, S)`` real.
    fields
        ``(n, w)`` complex.

    Returns
    -------
    Tensor
        ``(n, w)`` complex.
    """
    external, common = torch.exp(1j * phi), 1j * torch.exp(0.5j * theta)
    sine, cosine = common * torch.sin(0.5 * theta), common * torch.cos(0.5 * theta)
    t00, t10 = external * sine, external * cosine
    for mzis, first, last in columns:
        upper, lower = fields[first:last:2], fields[first + 1 : last : 2]
        pairs = (t00[mzis] * upper + cosine[mzis] * lower, t10[mzis] * upper - sine[mzis] * lower)
        mixed = torch.stack(pairs, 1).flatten(0, 1)
        whole = last - first == len(fields)
        fields = mixed if whole else torch.cat((fields[:first], mixed, fields[last:]))
    return torch.exp(1j * output) * fields
