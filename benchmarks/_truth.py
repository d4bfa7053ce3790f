"""The truth about a hidden chip as a twin: for judges alone, never for what calibrates."""

import math

import numpy as np

from optinc_hw.photonics import ChipLayout, TwinParameters
from optinc_hw.photonics.arms import bare_arms
from simulated_instruments import HiddenChip
from simulated_instruments._geometry import BARE, ArmSections


def true_twin(chip: HiddenChip, laser_power_w: float = 1.0) -> TwinParameters:
    """Return the twin that predicts a hidden bare mesh, as far as a twin can; powers are those of the heaters."""
    layout, truth, effects = chip.layout, chip.parameters, chip.effects
    mzis, n, heaters = len(layout.mesh.mzis), layout.ports, len(layout.heaters)
    sections = ArmSections(layout)
    # With output phases, what passes an MZI on both arms can be pushed there; losses do count there.
    behind = ChipLayout(n, layout.mesh, inputs="ports", receivers="homodyne")
    pushed, sites = bare_arms(behind).effect, bare_arms(layout).sites
    to_mesh, to_outputs = pushed[:heaters, : len(sites)], pushed[heaters : heaters + n, : len(sites)]
    heated = np.array([np.flatnonzero(sections.heater == h)[0] for h in range(heaters)])
    bare = np.array([_section_at(sections, site) for site in sites])
    loss = np.log(truth.section_amplitude)
    crosstalk = truth.crosstalk[heated] + to_mesh @ truth.crosstalk[bare]
    own = np.diagonal(crosstalk)
    return TwinParameters(
        n,
        offset=truth.offset_rad[heated] + to_mesh @ truth.offset_rad[bare],
        efficiency=np.pi / truth.pi_power_w * own,
        crosstalk=crosstalk / own,
        input_eta=np.empty((0, 2)),
        mesh_eta=np.stack([truth.eta_in_rad, truth.eta_out_rad], axis=1),
        attenuator_eta=np.empty((0, 2)),
        receiver_eta=np.empty(0),
        input_amplitude=math.sqrt(laser_power_w) * truth.input_amplitude,
        mzi_transmission=truth.mzi_amplitude,
        output_transmission=truth.output_amplitude * np.exp(to_outputs @ loss[bare]),
        lo_amplitude=np.empty(0),
        gain=truth.gain,
        dark_w=truth.dark_w,
        mesh=layout.mesh,
        stuck=layout.stuck,
        inputs="ports",
        receivers="power",
        arm_loss=-(loss[heated] + to_mesh @ loss[bare]).reshape(mzis, 2),
        second_order=np.array([0.0, effects.second_order_crosstalk]) / np.pi,
        curvature=truth.phase_curvature / np.pi,
    )


def true_homodyne_twin(chip: HiddenChip, laser_power_w: float = 1.0) -> TwinParameters:
    """Return the twin that predicts OptINC's own chip but for losses that differ between the arms of an MZI."""
    layout, truth, effects = chip.layout, chip.parameters, chip.effects
    n, first = layout.ports, layout.modulators
    last = first + len(layout.mesh.mzis)
    sections, arms = ArmSections(layout), bare_arms(layout)
    bare = np.array([_section_at(sections, site) for site in arms.sites])
    crosstalk = truth.crosstalk[sections.own] + arms.effect @ truth.crosstalk[bare]
    own = np.diagonal(crosstalk)
    offset = truth.offset_rad[sections.own] + arms.effect @ truth.offset_rad[bare]
    offset[layout.output_phase] -= truth.lo_phase_rad
    eta = np.stack([truth.eta_in_rad, truth.eta_out_rad], axis=1)
    laser = math.sqrt(laser_power_w)
    return TwinParameters(
        n,
        offset=offset,
        efficiency=np.pi / truth.pi_power_w * own,
        crosstalk=crosstalk / own,
        input_eta=eta[:first],
        mesh_eta=eta[first:last],
        attenuator_eta=eta[last:],
        receiver_eta=truth.receiver_eta_rad,
        input_amplitude=laser * math.sqrt((1.0 - effects.lo_fraction) / n) * truth.input_amplitude
        * truth.mzi_amplitude[:first],
        mzi_transmission=truth.mzi_amplitude[first:last],
        output_transmission=truth.output_amplitude * truth.mzi_amplitude[last:],
        lo_amplitude=np.full(n, laser * math.sqrt(effects.lo_fraction / n)),
        gain=truth.gain,
        dark_w=truth.dark_w,
        mesh=layout.mesh,
        stuck=layout.stuck,
        curvature=truth.phase_curvature / np.pi,
    )  # fmt: skip


def _section_at(sections: ArmSections, site: np.ndarray) -> int:
    at_site = np.all(np.isclose(sections.sites, site), axis=1) & (sections.heater == BARE)
    (index,) = np.flatnonzero(at_site)
    return int(index)
