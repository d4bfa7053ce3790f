"""From the heat of all heaters to the phases of all arm sections of the hidden chip."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._effects import HiddenEffects
from simulated_instruments._geometry import ArmSections
from simulated_instruments._parameters import FloatArray, HiddenParameters

_PLACES = 2
"""Neighbouring places along the light that share a product: their heaters within reach are nearly the same."""
_COST = 8000
"""Elements of the crosstalk that a product costs besides its own."""


class SectionPhases:
    """Phases of the arm sections: offsets, heat with its crosstalk, curvature, chip temperature."""

    def __init__(self, layout: ChipLayout, effects: HiddenEffects, parameters: HiddenParameters) -> None:
        sections, p = ArmSections(layout), parameters
        wired = p.wiring.astype(np.intp)
        # The heater of a stuck phase takes current, but its heat reaches no waveguide.
        movable = layout.movable[wired] * p.heats
        self._radian_per_watt = math.pi / p.pi_power_w * movable
        self._offset = p.offset_rad
        if effects.temperature_k != 0.0:
            self._offset = p.offset_rad + effects.temperature_k * p.phase_per_kelvin_rad
            self._radian_per_watt = self._radian_per_watt * (1.0 + effects.temperature_k * effects.efficiency_per_k)
        self._linear = _LinearPhases(sections, p.crosstalk, self._radian_per_watt)
        self._own = sections.own[wired]
        self._curvature = p.phase_curvature / math.pi
        self._neighbours = _neighbours(layout, effects, wired)
        self._curved = bool(self._curvature.any()) or self._neighbours is not None

    def __call__(self, heat_w: FloatArray, wavelength_ratio: float) -> FloatArray:
        """Return the phases (S,) in rad.

        Parameters
        ----------
        heat_w
            (H,) heat in W that each heater gives off.
        wavelength_ratio
            Design wavelength over the laser's.
        """
        heat = heat_w * wavelength_ratio
        phase = self._linear(heat) + self._offset
        if self._curved:
            own = self._radian_per_watt * heat
            growth = self._curvature * own
            if self._neighbours is not None:
                growth = growth + np.einsum("hk,k->h", self._neighbours, own)
            phase[self._own] += own * growth
        return phase


class _LinearPhases:
    """Product of crosstalk (S, H) and heat (H,), over the heaters within reach of each column where that is less work.

    einsum instead of a BLAS product: at this size BLAS starts threads that cost more than the product.
    """

    def __init__(self, sections: ArmSections, crosstalk: FloatArray, radian_per_watt: FloatArray) -> None:
        self._parts: list[tuple[slice, slice, FloatArray]] = []
        everything = (slice(None), slice(None))
        reach = list(_within_reach(sections, crosstalk))
        cost = sum(_COST + (rows.stop - rows.start) * (heaters.stop - heaters.start) for rows, heaters in reach)
        cut = reach if cost < crosstalk.size else [everything]
        self._parts = [(rows, heaters, crosstalk[rows, heaters] * radian_per_watt[heaters]) for rows, heaters in cut]
        self._count = len(crosstalk)

    def __call__(self, heat: FloatArray) -> FloatArray:
        phase = np.empty(self._count)
        for rows, heaters, matrix in self._parts:
            np.einsum("sh,h->s", matrix, heat[heaters], out=phase[rows])
        return phase


def _within_reach(sections: ArmSections, crosstalk: FloatArray) -> Iterator[tuple[slice, slice]]:
    """Yield runs of sections at one place along the light, and the heaters from the first to the last in reach."""
    places = sections.sites[:, 0]
    edges = [0, *(np.flatnonzero(np.diff(places)) + 1)[_PLACES - 1 :: _PLACES].tolist(), len(places)]
    for start, stop in pairwise(edges):
        reached = np.flatnonzero(crosstalk[start:stop].any(axis=0))
        yield slice(start, stop), slice(reached[0], reached[-1] + 1) if len(reached) else slice(0, 0)


def _neighbours(layout: ChipLayout, effects: HiddenEffects, wired: NDArray[np.intp]) -> FloatArray | None:
    """Growth (H, H) of the efficiency of one heater per rad that another gives; None if there is none."""
    if effects.second_order_crosstalk == 0.0:
        return None
    sites = layout.heater_sites[wired]
    distance = np.hypot(*(sites[:, None] - sites[None]).transpose(2, 0, 1))
    near = np.exp(-(np.maximum(distance, 1.0) - 1.0) / effects.second_order_length)
    np.fill_diagonal(near, 0.0)
    return np.asarray(effects.second_order_crosstalk / math.pi * near)
