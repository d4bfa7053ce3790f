"""Twins for tests: imperfect chips, and the twin that equals a hidden chip exactly."""

from dataclasses import replace

import numpy as np

from optinc_hw.photonics import TwinParameters
from optinc_hw.photonics.arms import bare_arms
from simulated_instruments._geometry import BARE, ArmSections


def imperfect_twin(ports, seed):
    """A twin like a calibrated chip's: offsets, coupler errors, losses, gains, heat on neighbours of its own group."""
    rng = np.random.default_rng(seed)
    nominal = TwinParameters.nominal(ports, input_amplitude=0.03, lo_amplitude=0.02)
    heaters, mzis, normal = len(nominal.offset), len(nominal.mzi_transmission), rng.standard_normal
    crosstalk = np.eye(heaters) + _near(nominal.layout.heater_sites, nominal.layout, rng, 0.008)
    bare = bare_arms(nominal.layout)
    crosstalk = crosstalk + bare.effect @ _near(bare.sites, nominal.layout, rng, 0.0016)
    return replace(
        nominal,
        offset=rng.uniform(0.0, 2.0 * np.pi, heaters),
        efficiency=nominal.efficiency * (1.0 + 0.02 * normal(heaters)),
        crosstalk=crosstalk / np.diagonal(crosstalk),
        input_eta=nominal.input_eta + 0.01 + 0.02 * normal((ports, 2)),
        mesh_eta=nominal.mesh_eta + 0.01 + 0.02 * normal((mzis, 2)),
        attenuator_eta=nominal.attenuator_eta + 0.01 + 0.02 * normal((ports, 2)),
        receiver_eta=nominal.receiver_eta + 0.01 * normal(ports),
        input_amplitude=nominal.input_amplitude * (1.0 + 0.04 * normal(ports)),
        mzi_transmission=0.983 + 0.003 * normal(mzis),
        output_transmission=0.89 + 0.03 * normal(ports),
        gain=1.0 + 0.05 * normal(2 * ports),
        dark_w=5e-9 * normal(2 * ports),
    )


def _near(sites, layout, rng, strength):
    distance = np.linalg.norm(sites[:, None] - layout.heater_sites[None], axis=-1)
    near = (distance > 0.0) & (distance < 3.3)
    spread = 1.0 + 0.3 * rng.standard_normal(distance.shape)
    return near * strength * np.exp((1.0 - np.maximum(distance, 1.0)) / 0.6) * spread


def bare_sections(layout):
    """Indices of the hidden chip's bare sections in the order of ``bare_arms``, found by their places."""
    sections, bare = ArmSections(layout), bare_arms(layout)
    found = []
    for site in bare.sites:
        at_site = np.all(np.isclose(sections.sites, site), axis=1) & (sections.heater == BARE)
        (index,) = np.flatnonzero(at_site)
        found.append(index)
    return np.array(found)


def matched_twin(chip, laser_power_w):
    """The twin that predicts a hidden chip without arm losses exactly; only tests may look at its parameters."""
    layout, truth, effects = chip.layout, chip.parameters, chip.effects
    n, mzis = layout.ports, len(layout.mesh.mzis)
    sections, bare = ArmSections(layout), bare_arms(layout)
    heated = np.array([np.flatnonzero(sections.heater == h)[0] for h in range(len(layout.heaters))])
    bare_index = bare_sections(layout)
    offset = truth.offset_rad[heated] + bare.effect @ truth.offset_rad[bare_index]
    offset[layout.output_phase] -= truth.lo_phase_rad
    crosstalk = truth.crosstalk[heated] + bare.effect @ truth.crosstalk[bare_index]
    eta = np.stack([truth.eta_in_rad, truth.eta_out_rad], axis=1)
    field = np.sqrt(laser_power_w / n)
    return TwinParameters(
        n,
        offset=offset,
        efficiency=np.pi / truth.pi_power_w,
        crosstalk=crosstalk,
        input_eta=eta[:n],
        mesh_eta=eta[n : n + mzis],
        attenuator_eta=eta[n + mzis :],
        receiver_eta=truth.receiver_eta_rad,
        input_amplitude=field * np.sqrt(1.0 - effects.lo_fraction) * truth.input_amplitude * truth.mzi_amplitude[:n],
        mzi_transmission=truth.mzi_amplitude[n : n + mzis],
        output_transmission=truth.mzi_amplitude[n + mzis :] * truth.output_amplitude,
        lo_amplitude=np.full(n, field * np.sqrt(effects.lo_fraction)),
        gain=truth.gain,
        dark_w=truth.dark_w,
        mesh=layout.mesh,
        stuck=layout.stuck,
    )


def set_heater_powers(chip, power_w):
    """Heat a hidden chip and wait until the heat has settled."""
    truth = chip.parameters
    resistance = truth.resistance_ohm * (1.0 + truth.resistance_growth_per_w * power_w)
    chip.set_heater_voltages(dict(enumerate(np.sqrt(power_w * resistance).tolist())))
    chip.clock.sleep(1.0)
