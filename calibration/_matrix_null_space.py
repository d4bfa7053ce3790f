"""What powers of single lit inputs cannot tell: the exact null space of the readings, named in words.

A reference for small chips (a dense singular value decomposition): some seconds at 6 ports, minutes at 8 with all
crosstalk.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from calibration._arrays import complexes
from calibration._matrix_inputs import input_effect
from calibration._matrix_null_names import BLOCKS, candidates, parameter_names, readable
from calibration._mesh_checks import checked_settings, require_one_of
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipElements, ChipLayout, ChipModel, TwinParameters

_HEAT = "heat on an input phase"
_TYPICAL = {
    "offset": 1.0, "efficiency": 0.05, "crosstalk": 0.02, "curvature": 0.001, "mesh_eta": 0.03, "arm_loss": 0.02,
    "mzi_transmission": 0.02, "input_amplitude": 0.2, "output_transmission": 0.2, "gain": 0.05,
}  # fmt: skip
"""Typical sizes, by which parameters of different units are compared."""
_ZERO = 1e-9
"""Singular values below this share of the largest are zero."""
_SEEN = 1e-7


@dataclass(frozen=True)
class InvisibleCombination:
    """One combination of parameters that changes no reading.

    Parameters
    ----------
    kind
        "input phase", "heat on an input phase", "curvature of an input phase", "loss" or, where the data are too few,
        "unseen by these data".
    words
        What it is.
    direction
        Changes (size,) of the parameter vector.
    """

    kind: str
    words: str
    direction: Array


@dataclass(frozen=True)
class NullSpace:
    """All combinations that change no reading.

    Parameters
    ----------
    names
        Names (size,) of the parameters of the vector.
    combinations
        A basis of the null space: combinations known from physics first, then what else the data do not see.
    singular_values
        Singular values (size,) of the readings' derivatives over noise, parameters in typical sizes, largest first.
    """

    names: tuple[str, ...]
    combinations: tuple[InvisibleCombination, ...]
    singular_values: Array

    def count(self, kind: str) -> int:
        """Return the number of combinations of a kind."""
        return sum(combination.kind == kind for combination in self.combinations)

    def text(self, *, full: bool = False) -> str:
        """Return all in words, a line each.

        Parameters
        ----------
        full
            Also list the heat of every heater on every input phase; otherwise one line stands for all.
        """
        lines = [
            f"{len(self.combinations)} of {len(self.names)} combinations of parameters change no power of a single lit "
            "input; their values are those of the prior:"
        ]
        heat = self.count(_HEAT)
        for combination in self.combinations:
            if combination.kind != _HEAT or full:
                lines.append(f"- {combination.kind}: {combination.words}")
            elif heat:
                lines.append(f"- {_HEAT}: {heat} combinations, for instance {combination.words}")
                heat = 0
        lines.append(
            "- apart from these, the complex conjugate of the chip (all phases negated) gives the same powers; it is "
            "excluded because phases grow with heater power"
        )
        return "\n".join(lines)


def invisible_combinations(
    twin: TwinParameters, power_w: ArrayLike, lit: ArrayLike, noise: NoiseModel,
    blocks: tuple[str, ...] = BLOCKS,
) -> NullSpace:  # fmt: skip
    """Find and name the combinations of a twin's parameters that readings with single lit inputs do not depend on.

    Parameters
    ----------
    twin
        Twin of a chip without modulators and with power detectors.
    power_w
        Heater powers (B, H) in W of the readings.
    lit
        Lit ports (B,); or input fields (B, n) complex, to see what coherent light in several ports adds.
    noise
        Noise of a reading.
    blocks
        Which parameters are unknown, of `BLOCKS`.

    Returns
    -------
    NullSpace
        Its ``text()`` is the report.

    Raises
    ------
    CalibrationError
        If the chip has modulators or homodyne receivers, there are no readings, powers, ports or fields are none of
        this chip's, or a block is unknown or named twice.
    """
    powers, light = _checked(twin.layout, power_w, lit)
    named = require_one_of(blocks, BLOCKS, "blocks")
    chosen = tuple(block for block in BLOCKS if block in named)
    # Where heating is of second order, its effect on input phases is none of the chosen parameters.
    bent = twin.curvature if "curvature" in chosen else np.zeros_like(twin.curvature)
    twin = replace(twin, second_order=np.zeros(2), curvature=bent)
    jacobian, typical, names = _jacobian(twin, powers, light, noise, chosen)
    scaled = jacobian * typical
    _, values, right = np.linalg.svd(scaled, full_matrices=scaled.shape[0] < scaled.shape[1])
    values = np.concatenate([values, np.zeros(scaled.shape[1] - len(values))])
    dark = values <= _ZERO * values[0]
    null = right[dark]
    return NullSpace(names, tuple(_named(twin, chosen, scaled, typical, names, null, float(values[0]))), values)


def _checked(layout: ChipLayout, power_w: ArrayLike, lit: ArrayLike) -> tuple[Array, NDArray[np.generic]]:
    """Return powers (B, H), and lit ports (B,) or input fields (B, n), at least a row of them."""
    if not layout.bare:
        raise CalibrationError("the null space is named for chips without modulators and with power detectors only")
    light: NDArray[np.generic] = complexes("lit", lit)
    if light.ndim == 2:
        powers, _ = checked_settings(power_w, np.zeros(len(light), dtype=np.intp), layout)
        if light.shape[1] != layout.ports or not np.isfinite(light).all():
            raise CalibrationError(
                f"lit as input fields must be finite and ({len(powers)}, {layout.ports}), a row a setting, got "
                f"{light.shape}; or give lit ports ({len(powers)},)"
            )
    else:
        powers, light = checked_settings(power_w, lit, layout)
    if not len(powers):
        raise CalibrationError("there are no readings, and what readings cannot see depends on them; give one or more")
    return powers, light


def _named(
    twin: TwinParameters, blocks: tuple[str, ...], scaled: Array, typical: Array, names: tuple[str, ...], null: Array,
    largest: float,
) -> list[InvisibleCombination]:  # fmt: skip
    """Name the null space: candidates from physics that the readings really do not see, then the rest."""
    found: list[InvisibleCombination] = []
    basis = np.empty((0, len(typical)))
    for kind, words, direction in candidates(twin, blocks, input_effect(twin.layout)):
        unit = direction / typical
        unit = unit / np.linalg.norm(unit)
        if np.linalg.norm(scaled @ unit) > _SEEN * largest:
            continue
        rest = unit - basis.T @ (basis @ unit)
        if np.linalg.norm(rest) < 1e-6:
            continue
        basis = np.vstack([basis, rest / np.linalg.norm(rest)])
        found.append(InvisibleCombination(kind, words, direction))
    left = null - (null @ basis.T) @ basis
    if len(left):
        _, sizes, vectors = np.linalg.svd(left, full_matrices=False)
        for vector in vectors[: int(np.sum(sizes > 1e-3))]:
            words = readable(vector, names)
            found += [InvisibleCombination("unseen by these data", words, vector * typical)]
    return found


def _jacobian(
    twin: TwinParameters, powers: Array, light: NDArray[np.generic], noise: NoiseModel, blocks: tuple[str, ...]
) -> tuple[Array, Array, tuple[str, ...]]:
    """Differentiate readings over noise by the parameter vector (readings, size); typical sizes and names of it."""
    by_phase, by_element, readings = _model_derivatives(twin, powers, light)
    drive = twin.efficiency * twin.layout.movable * powers
    off = ~np.eye(len(twin.offset), dtype=bool)
    parts = by_element | {
        "offset": by_phase,
        "efficiency": (by_phase @ twin.crosstalk + by_phase * (2.0 * twin.curvature * drive)[:, None, :])
        * drive[:, None, :],
        "curvature": by_phase * drive[:, None, :] ** 2,
        "crosstalk": (by_phase[:, :, :, None] * drive[:, None, None, :])[:, :, off]
        if "crosstalk" in blocks
        else by_phase,
    }
    for block in ("mzi_transmission", "input_amplitude", "output_transmission", "gain"):
        parts[block] = parts[block] * getattr(twin, block)
    labels = parameter_names(twin)
    names = tuple(name for block in blocks for name in labels[block])
    typical = np.concatenate([np.full(len(labels[block]), _TYPICAL[block]) for block in blocks])
    weight = 1.0 / noise.sigma(readings - twin.dark_w)
    whole = np.concatenate([parts[block] for block in blocks], axis=-1) * weight[:, :, None]
    return whole.reshape(-1, whole.shape[-1]), typical, names


def _model_derivatives(
    twin: TwinParameters, powers: Array, light: NDArray[np.generic]
) -> tuple[Array, dict[str, Array], Array]:
    """Differentiate readings by phases (B, D, H) and by every element (B, D, size), and the readings (B, D)."""
    count = len(powers)
    elements = ChipElements.from_parameters(twin)
    leaves: dict[str, Tensor] = {}
    for field in fields(ChipElements):
        if field.name in BLOCKS:
            value: Tensor = getattr(elements, field.name)
            leaves[field.name] = value.expand(count, *value.shape).clone().requires_grad_()
    phases = torch.as_tensor(twin.phases(powers)).requires_grad_()
    readings = ChipModel(twin.layout, replace(elements, **leaves)).detector_powers(phases, torch.as_tensor(light))
    by_phase, by_element = [], []
    for detector in range(readings.shape[1]):
        first, *rest = torch.autograd.grad(readings[:, detector].sum(), [phases, *leaves.values()], retain_graph=True)
        by_phase.append(first.numpy())
        by_element.append([part.reshape(count, -1).numpy() for part in rest])
    named = {name: np.stack([row[k] for row in by_element], axis=1) for k, name in enumerate(leaves)}
    return np.stack(by_phase, axis=1), named, readings.detach().numpy()
