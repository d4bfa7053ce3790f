"""What a mesh can still do whose heaters do not all move their phases."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics import ChipLayout


def abilities(layout: ChipLayout, fixed: NDArray[np.bool_], dark: Iterable[str] = ()) -> tuple[str, ...]:
    """Say in words what a chip can still do.

    Parameters
    ----------
    layout
        The chip.
    fixed
        Heaters (H,) whose phases do not move.
    dark
        Names of detectors that see nothing.
    """
    lines = [f"{len(fixed) - int(fixed.sum())} of {len(fixed)} phases can be moved"]
    for k, (column, mode) in enumerate(layout.mesh.mzis):
        if fixed[layout.mesh_theta[k]]:
            lines.append(f"mzi_{column}_{mode} has a fixed split between modes {mode} and {mode + 1}")
        if fixed[layout.mesh_phi[k]]:
            lines.append(f"mzi_{column}_{mode} has a fixed external phase")
    lines.append(_reach(layout, fixed))
    lines += [f"the output of {name} is not seen; the others' readings tell the rest" for name in dark]
    return tuple(lines)


def _reach(layout: ChipLayout, fixed: NDArray[np.bool_]) -> str:
    """Say which unitaries can still be programmed."""
    block = intact_block(layout, fixed)
    if block == (0, layout.ports - 1):
        return "every unitary can be programmed, up to phases of the ports"
    if block is None:
        return "no unitary of two ports or more can be relied on; others only as far as the moving phases reach"
    return (
        f"every unitary on ports {block[0]} to {block[1]} can be programmed, up to phases of the ports; on all ports "
        "only what the fixed phases leave"
    )


def intact_block(layout: ChipLayout, fixed: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Find the largest block of neighbouring ports on which every unitary can be programmed, up to phases of the ports.

    Some neighbouring columns must hold a whole mesh of the block's modes whose phases move (external phases of its
    first column are those of its ports), and MZIs at the block's edges must be able to keep light in. What else is
    inside may stand still: then the phases that a mesh leaves open do the rest, in all cases that were tried; there
    is no proof.

    Parameters
    ----------
    layout
        The chip.
    fixed
        Heaters (H,) whose phases do not move.

    Returns
    -------
    tuple or None
        First and last port of the block.
    """
    mzis = list(enumerate(layout.mesh.mzis))
    theta, phi = fixed[layout.mesh_theta], fixed[layout.mesh_phi]
    for size in range(layout.ports, 1, -1):
        for low in range(layout.ports - size + 1):
            high = low + size - 1
            if any(theta[k] for k, (_, m) in mzis if m in (low - 1, high)):
                continue
            inside = [(k, column) for k, (column, m) in mzis if low <= m < high]
            for first in range(layout.mesh.depth - size + 1 if size > 2 else layout.mesh.depth):
                mesh = [(k, c) for k, c in inside if first <= c < first + size]
                broken = any(theta[k] or (phi[k] and c > first) for k, c in mesh)
                if len(mesh) == size * (size - 1) // 2 and not broken:
                    return low, high
    return None
