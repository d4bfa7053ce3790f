"""Hidden bare meshes for tests: small, lit, and heated to powers that the test chooses."""

import numpy as np
from twins import set_heater_powers

from simulated_instruments import HiddenChip, HiddenEffects

POWER_W = 1e-2
WAVELENGTH_M = 1550e-9
BARE = {"inputs": "ports", "receivers": "power"}


def bare_chip(ports, seed=0, **effects):
    """A bare mesh that is ideal but for these effects, with port 0 lit."""
    ideal = {name: getattr(HiddenEffects.none(), name) for name in HiddenEffects.__dataclass_fields__}
    chip = HiddenChip.from_seed(seed, ports, effects=HiddenEffects(**{**ideal, **effects}), **BARE)
    chip.set_laser(POWER_W, WAVELENGTH_M)
    chip.set_lit_port(0)
    return chip


def heat(chip, **phases):
    """Give the named heaters the power for these phases (rad) on a nominal chip, the others none."""
    power = np.zeros(len(chip.layout.heaters))
    for name, phase in phases.items():
        power[chip.layout.heater_index[name]] = phase / np.pi * chip.effects.pi_power_w
    set_heater_powers(chip, power)


def seen_theta(chip):
    """Internal phase (rad, 0..pi) of the one MZI of a lossless two-port chip with even couplers, from its powers."""
    return 2.0 * np.arcsin(np.sqrt(chip.detector_powers()[0] / POWER_W))
