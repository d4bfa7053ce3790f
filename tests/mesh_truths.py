"""Small bare meshes with flaws and their readings, computed by the product's chip model, not by the fit's kernels."""

from dataclasses import replace

import numpy as np

from calibration._mesh_linear import MeshData
from calibration._twin_fit import NoiseModel
from optinc_hw.photonics import ChipModel, TwinParameters
from optinc_hw.photonics.arms import bare_arms

P_PI = 0.02
NOISE = NoiseModel(1e-3, 1e-5)


def nominal(ports, mesh=None, stuck_rad=None):
    return TwinParameters.nominal(
        ports, input_amplitude=1.0, lo_amplitude=0.0, mesh=mesh, stuck_rad=stuck_rad, inputs="ports", receivers="power"
    )


def truth(
    ports,
    seed,
    *,
    mean=0.0,
    spread=0.02,
    positive=True,
    arm_loss=0.0,
    second_order=(0.0, 0.0),
    curvature=0.0,
    mesh=None,
):
    """A chip as the calibration recipe describes hidden chips; heat on every arm, 1.5 % at one pitch."""
    rng, chip = np.random.default_rng(seed), nominal(ports, mesh)
    heaters, mzis = len(chip.offset), len(chip.mzi_transmission)
    bare = bare_arms(chip.layout)
    sites = np.concatenate([chip.layout.heater_sites, bare.sites])
    distance = np.linalg.norm(sites[:, None] - chip.layout.heater_sites[None], axis=-1)
    scatter = rng.standard_normal(distance.shape)
    heat = 0.015 * np.exp(-(distance - 1.0) / 1.5) * (1.0 + 0.3 * scatter if positive else scatter)
    heat[np.arange(heaters), np.arange(heaters)] = 1.0
    crosstalk = np.concatenate([np.eye(heaters), bare.effect], axis=1) @ heat
    own = np.diagonal(crosstalk).copy()
    return replace(
        chip,
        offset=rng.uniform(0.0, 2.0 * np.pi, heaters),
        efficiency=np.pi / P_PI * (1.0 + 0.02 * rng.standard_normal(heaters)) * own,
        crosstalk=crosstalk / own,
        mesh_eta=np.pi / 4 + mean + spread * rng.standard_normal((mzis, 2)),
        mzi_transmission=10.0 ** (-(0.15 + 0.05 * rng.standard_normal(mzis)) / 20.0),
        input_amplitude=10.0 ** (0.3 * rng.standard_normal(ports) / 20.0),
        gain=1.0 + 0.05 * rng.standard_normal(ports),
        arm_loss=arm_loss * rng.standard_normal((mzis, 2)),
        second_order=np.array(second_order),
        curvature=curvature * rng.standard_normal(heaters),
    )


def exact(chip, power_w, lit):
    return ChipModel.from_parameters(chip).readings(chip, power_w, lit)


def settings(chip, count, rng):
    return rng.uniform(0.0, 2.0 * P_PI, (count, len(chip.offset))), rng.permutation(np.arange(count) % chip.ports)


def measured(chip, count, rng):
    power_w, lit = settings(chip, count, rng)
    powers = exact(chip, power_w, lit)
    return MeshData(power_w, lit, powers + NOISE.sigma(powers) * rng.standard_normal(powers.shape))


def rough(chip, rng, theta_rad=0.1, phi_rad=0.2):
    """What a start-up finds: offsets with errors, all else as designed, no crosstalk known."""
    error = np.empty(len(chip.offset))
    error[0::2] = theta_rad * rng.standard_normal(len(error) // 2)
    error[1::2] = phi_rad * rng.standard_normal(len(error) // 2)
    middle = np.full(len(error), P_PI)
    start = replace(nominal(chip.ports, chip.mesh), mzi_transmission=np.full(len(chip.mzi_transmission), 0.983))
    return replace(start, offset=chip.phases(middle) - np.pi + error)


def quiet(_step, _chi):
    pass
