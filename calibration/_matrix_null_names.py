"""Combinations of a bare mesh's parameters that powers of single inputs cannot tell, by physics, and their names."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from calibration._matrix_inputs import heaters_before_all
from calibration._session import Array
from optinc_hw.photonics import TwinParameters

BLOCKS = (
    "offset", "efficiency", "crosstalk", "curvature", "mesh_eta", "arm_loss", "mzi_transmission", "input_amplitude",
    "output_transmission", "gain",
)  # fmt: skip
"""Parameters that are looked at, in their order; positive ones by their logarithms."""
_SHOWN = 6
_SMALL = 1e-9


def block_sizes(twin: TwinParameters) -> dict[str, int]:
    """Return the number of parameters of each block; crosstalk without its diagonal."""
    heaters = len(twin.offset)
    sizes = {block: int(np.asarray(getattr(twin, block)).size) for block in BLOCKS}
    return sizes | {"crosstalk": heaters * (heaters - 1)}


def parameter_names(twin: TwinParameters) -> dict[str, list[str]]:
    """Return the names of the parameters of each block."""
    heaters = twin.layout.heaters
    mzis = [f"mzi_{column}_{mode}" for column, mode in twin.layout.mesh.mzis]
    ports = range(twin.ports)
    return {
        "offset": [f"offset of {name}" for name in heaters],
        "efficiency": [f"efficiency of {name}" for name in heaters],
        "crosstalk": [f"heat of {b} on {a}" for a in heaters for b in heaters if a != b],
        "curvature": [f"curvature of {name}" for name in heaters],
        "mesh_eta": [f"{side} coupler of {mzi}" for mzi in mzis for side in ("first", "second")],
        "arm_loss": [f"arm loss of {mzi}_{arm}" for mzi in mzis for arm in ("theta", "phi")],
        "mzi_transmission": [f"transmission of {mzi}" for mzi in mzis],
        "input_amplitude": [f"amplitude of input {i}" for i in ports],
        "output_transmission": [f"transmission of output {j}" for j in ports],
        "gain": [f"gain of detector {j}" for j in ports],
    }


def readable(direction: Array, names: tuple[str, ...]) -> str:
    """Write a combination as a sum, its largest terms first."""
    largest = float(np.abs(direction).max())
    shown = [k for k in np.argsort(-np.abs(direction), kind="stable") if abs(direction[k]) > 1e-3 * largest]
    terms = [f"{direction[k] / largest:+.3g} {names[k]}" for k in shown[:_SHOWN]]
    more = len(shown) - _SHOWN
    return ", ".join(terms) + (f" and {more} smaller terms" if more > 0 else "")


def candidates(twin: TwinParameters, blocks: tuple[str, ...], effect: Array) -> Iterator[tuple[str, str, Array]]:
    """Yield kind, words and direction (in the vector of the chosen blocks) of what powers should not show.

    Parameters
    ----------
    twin
        The chip.
    blocks
        Chosen blocks, in the order of `BLOCKS`.
    effect
        What a phase on each input does to the heated phases (n, H).
    """
    sizes, names = block_sizes(twin), parameter_names(twin)
    chosen = np.concatenate([np.full(sizes[block], block in blocks) for block in BLOCKS])
    every = tuple(name for block in BLOCKS for name in names[block])
    heaters = twin.layout.heaters
    groups = [("input phase", "", _phases(sizes, effect))]
    for h, name in enumerate(heaters):
        groups.append(("heat on an input phase", f"heat of {name}: ", _heat(twin, sizes, effect, h)))
    groups.append(("curvature of an input phase", "", _curvatures(sizes, effect)))
    groups.append(("loss", "", _losses(twin, sizes)))
    for kind, lead, full in groups:
        rows = _without(full, ~chosen)
        for number, row in enumerate(rows, start=1):
            plain = kind in ("input phase", "heat on an input phase") and len(rows) == len(full)
            what = f"phase of input {number} against input 0: " if plain else ""
            yield kind, lead + what + readable(row, every), row[chosen]


def _start(sizes: dict[str, int], block: str) -> int:
    return sum(sizes[name] for name in BLOCKS[: BLOCKS.index(block)])


def _phases(sizes: dict[str, int], effect: Array) -> Array:
    rows = np.zeros((len(effect) - 1, sum(sizes.values())))
    rows[:, : effect.shape[1]] = effect[1:]
    return rows


def _heat(twin: TwinParameters, sizes: dict[str, int], effect: Array, heater: int) -> Array:
    """Heat of one heater on the phases of inputs 1..: its column of crosstalk, its own phase by its efficiency."""
    count = len(twin.offset)
    rows = np.zeros((len(effect) - 1, sum(sizes.values())))
    others = np.flatnonzero(np.arange(count) != heater)
    off = np.full((count, count), -1)
    off[~np.eye(count, dtype=bool)] = _start(sizes, "crosstalk") + np.arange(count * (count - 1))
    own = effect[1:, heater]
    rows[:, _start(sizes, "efficiency") + heater] = own
    rows[:, _start(sizes, "curvature") + heater] = -2.0 * own * twin.curvature[heater]
    rows[:, off[others, heater]] = effect[1:, others] - own[:, None] * twin.crosstalk[others, heater]
    return rows


def _curvatures(sizes: dict[str, int], effect: Array) -> Array:
    """Curvatures of heaters whose phase is nothing but a phase of inputs."""
    alone = heaters_before_all(effect)
    rows = np.zeros((len(alone), sum(sizes.values())))
    rows[np.arange(len(alone)), _start(sizes, "curvature") + alone] = 1.0
    return rows


def _losses(twin: TwinParameters, sizes: dict[str, int]) -> Array:
    """Losses that can be moved: of an MZI or an input through the mesh, of an output into its detector's gain.

    Loss common to both arms passes an MZI as a common phase does; what is left of it sits on single arms and outputs.
    """
    mesh, total = twin.layout.mesh, sum(sizes.values())
    unit = np.eye(total)
    gain, output = _start(sizes, "gain"), _start(sizes, "output_transmission")
    rows = [unit[gain + j] - 0.5 * unit[output + j] for j in range(twin.ports)]
    behind = -unit[output : output + twin.ports]
    for column in reversed(range(mesh.depth)):
        before = behind.copy()
        for cell in mesh.columns[column]:
            upper = mesh.mzis[cell][1]
            common = behind[upper] + behind[upper + 1]
            arm = unit[_start(sizes, "arm_loss") + 2 * cell + 1]
            rows.append(unit[_start(sizes, "mzi_transmission") + cell] + common)
            before[upper], before[upper + 1] = arm, common - arm
        behind = before
    rows += [unit[_start(sizes, "input_amplitude") + i] + behind[i] for i in range(twin.ports)]
    return np.array(rows)


def _without(rows: Array, missing: NDArray[np.bool_]) -> Array:
    """Combine rows so that missing parameters do not appear, by elimination."""
    work = rows.copy()
    for place in np.flatnonzero(missing & (np.abs(rows) > _SMALL).any(axis=0)):
        able = np.flatnonzero(np.abs(work[:, place]) > _SMALL)
        if not len(able):
            continue
        # The row with fewest terms spoils the others least.
        pivot = able[np.argmin((np.abs(work[able]) > _SMALL).sum(axis=1))]
        eliminated = work - np.outer(work[:, place] / work[pivot, place], work[pivot])
        work = np.delete(eliminated, pivot, axis=0)
    return work
