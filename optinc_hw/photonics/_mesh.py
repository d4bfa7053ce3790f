"""Phases and imperfections of a mesh."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._mzi import IDEAL_ETA
from optinc_hw.photonics.mesh_layout import MeshLayout

Arm = Literal["upper", "lower", "push_pull"]
Side = Literal["before", "after"]


@dataclass(frozen=True)
class PhasePlacement:
    """Where a chip has its phase shifters.

    A phase on ``"lower"`` turns the lower arm alone; ``"push_pull"`` turns the upper arm by half of it and the lower
    arm by minus half.  The default is the placement of `mzi_matrix`, in which everything else is computed.

    Parameters
    ----------
    internal
        Arm of the phase theta between the couplers.
    external
        Arm of the phase phi.
    side
        Whether phi comes before the MZI's first coupler or after its last.
    """

    internal: Arm = "upper"
    external: Arm = "upper"
    side: Side = "before"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("internal", ("upper", "lower", "push_pull")),
            ("external", ("upper", "lower", "push_pull")),
            ("side", ("before", "after")),
        ):
            if getattr(self, name) not in allowed:
                raise MatrixError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(allowed)}")


STANDARD = PhasePlacement()


@dataclass(frozen=True)
class MeshPhases:
    """Phases of a mesh in rad, of one setting or of a batch.

    Parameters
    ----------
    layout
        The mesh that they belong to, with K MZIs on n modes.
    theta, phi
        Internal and external phases ``(..., K)``, in the order of ``layout.mzis``.
    output
        Phases ``(..., n)`` behind the last column.
    input
        Phases ``(..., n)`` before the first column; None means that the chip has none (all 0).
    placement
        Which arms the phases act on.

    Raises
    ------
    MatrixError
        If a shape does not fit the layout or the others, or a phase is not finite.
    """

    layout: MeshLayout
    theta: NDArray[np.float64]
    phi: NDArray[np.float64]
    output: NDArray[np.float64]
    input: NDArray[np.float64] | None = None
    placement: PhasePlacement = STANDARD

    def __post_init__(self) -> None:
        batch = np.shape(self.theta)[:-1]
        mzis, ports = len(self.layout.mzis), self.layout.ports
        for name, length in (("theta", mzis), ("phi", mzis), ("output", ports), ("input", ports)):
            values = getattr(self, name)
            if name == "input" and values is None:
                continue
            if np.shape(values) != (*batch, length):
                raise MatrixError(f"{name} has shape {np.shape(values)}, the layout needs {(*batch, length)}")
            check_finite(name, values)

    @property
    def batch(self) -> tuple[int, ...]:
        """Leading axes; () for one setting."""
        return np.shape(self.theta)[:-1]


@dataclass(frozen=True)
class MeshImperfections:
    """Static imperfections of a mesh of K MZIs, of one chip or of a batch of chips.

    Leading axes broadcast against those of the phases.

    Parameters
    ----------
    eta_in, eta_out
        Splitting angles ``(..., K)`` in rad of each MZI's first and second coupler (ideal pi/4).
    transmission
        Field transmission ``(..., K)`` of each MZI, common to both arms (ideal 1; 0 absorbs all light).
    arms
        Field transmission ``(..., K, 2)`` of the upper and lower arm between the couplers; None means 1. An arm of
        0 is dead.
    stuck_theta, stuck_phi
        Phases ``(..., K)`` in rad at which MZIs are stuck whatever they are set to, in the placement of the phases;
        NaN where an MZI follows. None means that all follow.
    behind
        Field transmission ``(..., K, 2)`` of the upper and lower waveguide behind each MZI, relative to what
        ``transmission`` says, so that it may exceed 1; None means 1.
    """

    eta_in: NDArray[np.float64]
    eta_out: NDArray[np.float64]
    transmission: NDArray[np.float64]
    arms: NDArray[np.float64] | None = None
    stuck_theta: NDArray[np.float64] | None = None
    stuck_phi: NDArray[np.float64] | None = None
    behind: NDArray[np.float64] | None = None

    @classmethod
    def ideal(cls, layout: MeshLayout) -> "MeshImperfections":
        """Return perfect couplers and no loss for ``layout``."""
        mzis = len(layout.mzis)
        return cls(np.full(mzis, IDEAL_ETA), np.full(mzis, IDEAL_ETA), np.ones(mzis))

    def check(self, layout: MeshLayout) -> None:
        """Check that shapes fit ``layout`` and values are possible.

        Raises
        ------
        MatrixError
            If a shape does not fit, a value is not finite, or a transmission is not between 0 and 1.
        """
        mzis = len(layout.mzis)
        for name in ("eta_in", "eta_out", "transmission", "arms", "stuck_theta", "stuck_phi", "behind"):
            values = getattr(self, name)
            if values is None:
                continue
            tail = (mzis, 2) if name in ("arms", "behind") else (mzis,)
            shape = np.shape(values)
            if shape[len(shape) - len(tail) :] != tail:
                raise MatrixError(f"{name} has shape {shape}, the layout needs {tail} (and leading axes of a batch)")
            if name.startswith("stuck"):
                if np.isinf(values).any():
                    raise MatrixError(f"{name} holds Inf; give an angle in rad, or NaN where an MZI follows")
                continue
            check_finite(name, values)
            if name in ("transmission", "arms") and ((values < 0.0) | (values > 1.0)).any():
                raise MatrixError(f"{name} must lie between 0 and 1: a mesh does not amplify")
            if name == "behind" and (values < 0.0).any():
                raise MatrixError("behind holds a negative transmission; give its size, and the sign to phases")


def check_finite(name: str, values: NDArray[np.float64]) -> None:
    """Refuse NaN and Inf.

    Raises
    ------
    MatrixError
        If a value is not finite.
    """
    if not np.isfinite(values).all():
        raise MatrixError(f"{name} holds NaN or Inf; every value must be finite")
