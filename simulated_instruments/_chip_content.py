"""Everything about a hidden chip but its present voltages and light."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._draw import draw_parameters, stick
from simulated_instruments._effects import HiddenEffects
from simulated_instruments._parameters import HiddenParameters

_NOISE_STREAM = 1  # 0 and 2 are those of the parameters


@dataclass(frozen=True)
class ChipContent:
    """What a file says about a chip: everything but voltages and light."""

    layout: ChipLayout
    effects: HiddenEffects
    parameters: HiddenParameters
    noise_entropy: int


def drawn_chip(seed: int, layout: ChipLayout, effects: HiddenEffects, stuck_rad: Mapping[str, float]) -> ChipContent:
    """Draw a chip; the same arguments give the same chip and the same noise.

    Raises
    ------
    ConfigurationError
        If the seed is not a non-negative integer, or a stuck phase is not finite.
    """
    if not isinstance(seed, Integral) or seed < 0:
        raise ConfigurationError(f"the seed of a hidden chip must be an integer >= 0, got {seed!r}")
    for name, phase in stuck_rad.items():
        if not math.isfinite(phase):
            raise ConfigurationError(f"hidden chip: heater {name} cannot be stuck at {phase!r} rad; give a number")
    parameters = stick(draw_parameters(layout, effects, int(seed)), layout, stuck_rad)
    words = np.random.SeedSequence([int(seed), _NOISE_STREAM]).generate_state(4)
    entropy = sum(int(word) << (32 * k) for k, word in enumerate(words))
    return ChipContent(layout, effects, parameters, entropy)
