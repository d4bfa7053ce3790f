"""A mesh as a differentiable torch model: matrices and fields, of one setting or of batches of settings and chips."""

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from optinc_hw.errors import MatrixError
from optinc_hw.photonics import _engine, _torch_mesh
from optinc_hw.photonics._mesh import MeshImperfections
from optinc_hw.photonics._mesh_autograd import Fields, Settings, Transfer, forward_matrix, version
from optinc_hw.photonics._mzi import IDEAL_ETA
from optinc_hw.photonics._products import product
from optinc_hw.photonics.mesh_layout import MeshLayout

Backend = Literal["auto", "numba", "torch"]
_NARROW = 0.5
"""With more vectors a setting than this times n, the matrix is made first and multiplied then."""
_PRECISIONS = (torch.float32, torch.float64)
_SMALL_MESH, _LARGE_BATCH = 32, 16
"""Matrices of many settings of a small mesh are made by sending unit vectors through all settings at once."""


class MeshModel:
    """Forward model of a mesh, differentiable in phases, couplers, losses and fields.

    On the CPU compiled kernels do the work. Backward passes undo the mesh MZI by MZI, so memory does not grow with its
    depth; MZIs that cannot be undone (dead arms, much loss) save their inputs. Elsewhere torch operations do the same
    for fields, column by column; matrices they multiply in a tree, which keeps all its products.

    Parameters
    ----------
    layout
        The mesh, with K MZIs on n modes.
    eta_in, eta_out
        Splitting angles ``(..., K)`` in rad of each MZI's couplers; None means pi/4.
    transmission
        Field transmission ``(..., K)`` of each MZI; None means 1.
    arms
        Field transmission ``(..., K, 2)`` of the arms between its couplers; None means 1.
    behind
        Field transmission ``(..., K, 2)`` of the upper and lower waveguide behind it; None means 1.
    backend
        ``"auto"`` chooses by device; ``"torch"`` uses torch operations everywhere, whose matrices can be
        differentiated twice; ``"numba"`` insists on the kernels.

    Raises
    ------
    MatrixError
        If a shape does not fit the layout or the backend is unknown.

    Notes
    -----
    Real dtypes decide the precision: float32 phases give complex64 results, float64 phases complex128. Leading axes
    of phases and elements broadcast: settings of one chip, one setting of many chips, or one each.
    """

    def __init__(
        self,
        layout: MeshLayout,
        *,
        eta_in: Tensor | None = None,
        eta_out: Tensor | None = None,
        transmission: Tensor | None = None,
        arms: Tensor | None = None,
        behind: Tensor | None = None,
        backend: Backend = "auto",
    ) -> None:
        if backend not in ("auto", "numba", "torch"):
            raise MatrixError(f"unknown backend {backend!r}; choose 'auto', 'numba' or 'torch'")
        mzis = len(layout.mzis)
        for name, value, tail in (
            ("eta_in", eta_in, (mzis,)), ("eta_out", eta_out, (mzis,)), ("transmission", transmission, (mzis,)),
            ("arms", arms, (mzis, 2)), ("behind", behind, (mzis, 2)),
        ):  # fmt: skip
            if value is not None and tuple(value.shape[-len(tail) :]) != tail:
                raise MatrixError(f"{name} has shape {tuple(value.shape)}, the layout needs (..., *{tail})")
        self.layout = layout
        self._elements = (eta_in, eta_out, transmission, arms, behind)
        self._backend = backend
        self._fixed: tuple[tuple[Any, ...], Tensor, _engine.Plan] | None = None  # what it was made from comes first

    @classmethod
    def from_imperfections(
        cls,
        layout: MeshLayout,
        imperfections: MeshImperfections,
        dtype: torch.dtype = torch.float64,
        device: torch.device | None = None,
    ) -> "MeshModel":
        """Return the model of a mesh with known couplers and losses.

        Raises
        ------
        MatrixError
            If the imperfections do not fit the layout, or hold stuck phases.
        """
        imperfections.check(layout)
        if imperfections.stuck_theta is not None or imperfections.stuck_phi is not None:
            raise MatrixError("a MeshModel follows every phase; give it the values of stuck phases in theta and phi")
        values = (getattr(imperfections, name) for name in ("eta_in", "eta_out", "transmission", "arms", "behind"))
        eta_in, eta_out, transmission, arms, behind = (
            None if v is None else torch.as_tensor(v, dtype=dtype, device=device) for v in values
        )
        return cls(layout, eta_in=eta_in, eta_out=eta_out, transmission=transmission, arms=arms, behind=behind)

    def matrix(self, theta: Tensor, phi: Tensor, output: Tensor | None = None) -> Tensor:
        """Compute transfer matrices.

        Parameters
        ----------
        theta, phi
            Internal and external phases ``(..., K)`` in rad, in the standard placement.
        output
            Phases ``(..., n)`` behind the mesh in rad; None means 0.

        Returns
        -------
        Tensor
            ``(..., n, n)`` complex; the leading axes are those of phases and elements, broadcast.

        Raises
        ------
        MatrixError
            If a shape does not fit the layout.
        """
        couplings, plan = self._prepared(theta, phi, output)
        batch = _batch(theta, phi, output, couplings)
        n = self.layout.ports
        if not self._compiled(theta):
            made = _turned(output, _torch_mesh.transfer(self.layout, _torch_mesh.cells(theta, phi, couplings)))
            return made.expand(*batch, n, n)
        if batch == ():
            return Transfer.apply(theta, phi, output, couplings, self.layout, plan)  # type: ignore[no-untyped-call,no-any-return]
        flat = [_flat(part, batch) for part in (theta, phi)]
        rest = None if output is None else _flat(output, batch)
        if n <= _SMALL_MESH and len(flat[0]) >= _LARGE_BATCH:
            identity = torch.eye(n, dtype=_complex(theta.dtype)).expand(len(flat[0]), n, n)
            fields = self._settings(flat[0], flat[1], couplings, plan, batch, identity)
            return _turned(rest, fields).reshape(*batch, n, n)
        chips = couplings if couplings.ndim == 2 else _flat(couplings, batch, 2)
        made = Transfer.apply(*flat, rest, chips, self.layout, plan)  # type: ignore[no-untyped-call]
        return made.reshape(*batch, n, n)  # type: ignore[no-any-return]

    def apply(self, theta: Tensor, phi: Tensor, output: Tensor | None, fields: Tensor) -> Tensor:
        """Send fields through the mesh.

        Parameters
        ----------
        theta, phi
            Internal and external phases ``(..., K)`` in rad, in the standard placement.
        output
            Phases ``(..., n)`` behind the mesh in rad; None means 0.
        fields
            Input fields ``(..., n, w)`` complex: w vectors a setting.

        Returns
        -------
        Tensor
            Output fields ``(..., n, w)``; leading axes broadcast.

        Raises
        ------
        MatrixError
            If a shape does not fit the layout.
        """
        couplings, plan = self._prepared(theta, phi, output)
        n = self.layout.ports
        if fields.ndim < 2 or fields.shape[-2] != n:
            raise MatrixError(f"fields have shape {tuple(fields.shape)}; the mesh needs (..., {n}, w)")
        if fields.dtype != _complex(theta.dtype):
            raise MatrixError(f"fields are {fields.dtype}; with phases of {theta.dtype} use {_complex(theta.dtype)}")
        alone = all(part is None or part.ndim == 1 for part in (theta, phi, output)) and couplings.ndim == 2
        if alone and fields.ndim == 2 and self._compiled(theta):
            if not torch.is_grad_enabled():
                made = forward_matrix(theta, phi, output, couplings, self.layout, plan, "none")[0]
                return product(made, fields)
            return Fields.apply(theta, phi, output, couplings, fields, self.layout, plan)  # type: ignore[no-untyped-call,no-any-return]
        batch = _batch(theta, phi, output, couplings)
        sent_batch = _together("phases and fields", torch.Size(batch), fields.shape[:-2])
        if math.prod(batch) == 1 or fields.shape[-1] > _NARROW * n:
            return self.matrix(theta, phi, output) @ fields
        batch = sent_batch
        width = fields.shape[-1]
        flat = [_flat(part, batch) for part in (theta, phi)]
        sent = _flat(fields, batch, 2)
        if self._compiled(theta):
            got = self._settings(flat[0], flat[1], couplings, plan, batch, sent)
        else:
            cell = _torch_mesh.cells(flat[0], flat[1], couplings if couplings.ndim == 2 else _flat(couplings, batch, 2))
            got = _torch_mesh.settings(self.layout, cell, sent)
        return _turned(output, got.reshape(*batch, n, width))

    def _settings(
        self,
        theta: Tensor,
        phi: Tensor,
        couplings: Tensor,
        plan: _engine.Plan,
        batch: tuple[int, ...],
        fields: Tensor,
    ) -> Tensor:
        own = couplings if couplings.ndim == 2 else _flat(couplings, batch, 2).permute(1, 2, 0)
        return Settings.apply(theta.T, phi.T, own, fields, self.layout, plan)  # type: ignore[no-untyped-call,no-any-return]

    def _compiled(self, theta: Tensor) -> bool:
        if self._backend == "auto":
            return theta.device.type == "cpu"
        return self._backend == "numba"

    def _prepared(self, theta: Tensor, phi: Tensor, output: Tensor | None) -> tuple[Tensor, _engine.Plan]:
        """Check shapes; return couplings ``(..., K, 6)`` and the plan, kept unless they are to be differentiated."""
        mzis, n = len(self.layout.mzis), self.layout.ports
        for name, value, length in (("theta", theta, mzis), ("phi", phi, mzis), ("output", output, n)):
            if value is not None and (value.ndim < 1 or value.shape[-1] != length):
                raise MatrixError(f"{name} has shape {tuple(value.shape)}; the layout needs (..., {length})")
            if value is not None and (value.dtype not in _PRECISIONS or value.dtype != theta.dtype):
                raise MatrixError(f"{name} is {value.dtype}; phases must all be float32 or all float64")
        given = [value for value in self._elements if value is not None]
        source = (theta.dtype, theta.device, *map(version, given))
        fixed = self._fixed
        if fixed is not None and fixed[0] == source:
            return fixed[1:]
        couplings = _couplings(self.layout, self._elements, theta)
        plan = _engine.plan(self.layout, couplings.detach().cpu().numpy())
        if not any(value.requires_grad or value.is_inference() for value in given):
            self._fixed = source, couplings, plan
        return couplings, plan


def _couplings(layout: MeshLayout, elements: tuple[Tensor | None, ...], like: Tensor) -> Tensor:
    mzis = len(layout.mzis)
    defaults = (IDEAL_ETA, IDEAL_ETA, 1.0)
    eta_in, eta_out, common = (
        like.new_full((mzis,), default) if value is None else value.to(like)
        for value, default in zip(elements[:3], defaults, strict=True)
    )
    upper, lower = (common, common) if elements[3] is None else (common[..., None] * elements[3].to(like)).unbind(-1)
    cosine, sine = torch.cos(eta_out), torch.sin(eta_out)
    out_upper, out_lower = (common.new_ones(()),) * 2 if elements[4] is None else elements[4].to(like).unbind(-1)
    parts = (
        torch.cos(eta_in), torch.sin(eta_in), cosine * upper * out_upper, sine * upper * out_lower,
        cosine * lower * out_lower, sine * lower * out_upper,
    )  # fmt: skip
    batch = _together("elements", *(part.shape for part in parts))
    return torch.stack([part.expand(batch) for part in parts], dim=-1)


def _batch(theta: Tensor, phi: Tensor, output: Tensor | None, couplings: Tensor) -> tuple[int, ...]:
    shapes = [theta.shape[:-1], phi.shape[:-1], couplings.shape[:-2]]
    if output is not None:
        shapes.append(output.shape[:-1])
    return _together("phases and elements", *shapes)


def _together(what: str, *shapes: torch.Size) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = ", ".join(str(tuple(shape)) for shape in shapes)
        raise MatrixError(f"leading axes of {what} do not broadcast: {listed}") from None


def _flat(value: Tensor, batch: tuple[int, ...], trailing: int = 1) -> Tensor:
    """Expand the leading axes to ``batch`` and make them one."""
    tail = value.shape[value.ndim - trailing :]
    return value.expand(*batch, *tail).reshape(math.prod(batch), *tail)


def _turned(output: Tensor | None, rows: Tensor) -> Tensor:
    if output is None:
        return rows
    return torch.complex(torch.cos(output), torch.sin(output)).unsqueeze(-1) * rows


def _complex(dtype: torch.dtype) -> torch.dtype:
    return torch.complex64 if dtype == torch.float32 else torch.complex128
