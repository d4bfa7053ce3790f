"""Matrices of settings and gradients through them: the general kernels, and the quicker ones of lossless meshes."""

from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics._engine import COMPLEX, Array, Plan, unit
from optinc_hw.photonics.mesh_layout import MeshLayout

Gradients = Literal["none", "phases", "all"]
"""What will be pulled back: nothing, gradients by phases, or by phases and couplings."""


class Pass(Protocol):
    """One forward pass: its matrices (B, n, n), not to be changed, and what pulling gradients back needs."""

    matrix: Array

    def pull(self, cotangent: Array) -> tuple[Array, Array, Array, Array]:
        """Pull gradients of the matrices back.

        Parameters
        ----------
        cotangent
            ``dL/dRe + i dL/dIm`` of the matrices (B, n, n), complex.

        Returns
        -------
        tuple
            Gradients of theta and phi (B, K), of the output phases (B, n) and of the couplings (B, K, 6), the last
            with no entries if they were not announced.
        """
        ...


def matrices(
    layout: MeshLayout,
    theta: Array,
    phi: Array,
    output: Array,
    couplings: Array,
    plan: Plan,
    gradients: Gradients = "none",
) -> Pass:
    """Make the matrices of B settings.

    Parameters
    ----------
    layout
        The mesh.
    theta, phi
        (B, K).
    output
        Phases behind the mesh (B, n).
    couplings
        (B or 1, K, 6); of lossless meshes (B or 1, 1, 6) too, where all MZIs are alike.
    plan
        Which MZIs save their inputs.
    gradients
        What `Pass.pull` will be asked for.
    """
    if plan.lossless and gradients != "all":
        return LosslessPass(layout, theta, phi, output, couplings)
    return GeneralPass(layout, theta, phi, output, couplings, plan, gradients)


class GeneralPass:
    """Any couplings."""

    def __init__(
        self,
        layout: MeshLayout,
        theta: Array,
        phi: Array,
        output: Array,
        couplings: Array,
        plan: Plan,
        gradients: Gradients,
    ) -> None:
        from optinc_hw.photonics import _kernels

        batch, ports, dtype, width = len(theta), layout.ports, couplings.dtype, _width(layout.ports)
        undo = gradients != "none"
        self._layout, self._couplings, self._statics = layout, couplings, gradients == "all"
        self._trig, self._output = (*unit(theta), *unit(phi)), unit(output)
        self._slots = plan.slots if undo else np.full_like(plan.slots, -1)
        self._saved = np.empty((batch, plan.count if undo else 0, 2, 2, width), dtype)
        self._states = np.empty((batch if undo else 1, ports, 2, width), dtype)
        made = np.empty((batch, ports, 2 * ports), dtype)
        _kernels.transfer(
            layout.table, *self._trig, couplings, *self._output, self._slots, self._saved, self._states, made
        )
        self.matrix = made.view(COMPLEX[dtype])

    def pull(self, cotangent: Array) -> tuple[Array, Array, Array, Array]:
        """Pull gradients back, see `Pass`."""
        from optinc_hw.photonics import _kernels

        gradients = _empty_gradients(self._layout, len(cotangent), self._couplings.dtype, statics=self._statics)
        _kernels.transfer_vjp(
            self._layout.table, *self._trig, self._couplings, *self._output, self._slots, self._saved, self._states,
            _interleaved(cotangent), *gradients,
        )  # fmt: skip
        return gradients


class LosslessPass:
    """Couplings that lose no light; gradients by phases only."""

    def __init__(self, layout: MeshLayout, theta: Array, phi: Array, output: Array, couplings: Array) -> None:
        from optinc_hw.photonics import _rotation_kernels

        batch, ports, dtype = len(theta), layout.ports, couplings.dtype
        self._layout, self._couplings = layout, couplings
        self._turn = np.empty((batch, _rotation_kernels.KEPT, len(layout.mzis)), dtype)
        self._behind = np.empty((batch, ports, 2), dtype)
        made = np.empty((batch, ports, 2 * ports), dtype)
        phases = map(np.ascontiguousarray, (theta, phi, output))
        _rotation_kernels.transfer(layout.modes, *layout.strips, *phases, couplings, self._turn, self._behind, made)
        self.matrix = made.view(COMPLEX[dtype])

    def pull(self, cotangent: Array) -> tuple[Array, Array, Array, Array]:
        """Pull gradients back, see `Pass`."""
        return self.pull_product(self.matrix @ np.conj(cotangent.swapaxes(-2, -1)))

    def pull_product(self, product: Array) -> tuple[Array, Array, Array, Array]:
        """Pull back gradients Y of fields X behind the matrices, of which only ``X Y^H`` (B, n, n) is needed."""
        from optinc_hw.photonics import _similarity_kernels

        gradients = _empty_gradients(self._layout, len(product), self._couplings.dtype, statics=False)
        _similarity_kernels.transfer_vjp(
            self._layout.modes, *self._layout.layers, self._couplings, self._turn, self._behind,
            _interleaved(product), *gradients[:3],
        )  # fmt: skip
        return gradients


def _empty_gradients(
    layout: MeshLayout, batch: int, dtype: np.dtype[np.floating], *, statics: bool
) -> tuple[Array, Array, Array, Array]:
    mzis = len(layout.mzis)
    return (
        np.empty((batch, mzis), dtype),
        np.empty((batch, mzis), dtype),
        np.empty((batch, layout.ports), dtype),
        np.empty((batch if statics else 0, mzis, 6), dtype),
    )


def _interleaved(stack: Array) -> Array:
    """Matrices (B, n, n) as (B, n, 2n), real and imaginary parts interleaved."""
    whole: NDArray[np.complexfloating] = np.ascontiguousarray(stack)
    return whole.view(whole.real.dtype)


def _width(ports: int) -> int:
    """Row length: whole vectors, but no multiple of 64, which would put all rows into the same cache lines."""
    width = -(-ports // 8) * 8
    return width + 8 if width % 64 == 0 else width
