"""The joint fit at the end of a start: heat, and whether stated deviations are true; truth is read only to judge."""

import functools
import itertools

import numpy as np
import pytest
from _lab_mesh import LabMesh, carried_phases, phase_errors

from calibration._start import find_start
from calibration._start_heat import StartHeat
from calibration._start_joint import JointFit
from calibration._twin_fit import NoiseModel


@functools.cache
def started(ports, seed, preset):
    """Verdicts, and errors of thetas and phis (K,) in rad."""
    chip = LabMesh(ports, seed, preset)
    noise = NoiseModel(chip.relative, chip.floor_w)
    found = find_start(chip, np.random.default_rng(seed), noise, lambda *_: None)
    return found, phase_errors(chip, found.parameters.offset, found.parameters.efficiency)


def over_sigma(which, chips):
    """Errors over stated deviations of phases called good, pooled over chips; which: 0 thetas, 1 phis."""
    pooled = []
    for chip in chips:
        found, errors = started(*chip)
        verdicts = found.verdicts[which::2]
        judged = np.array([verdict.good and verdict.sigma_rad > 0.0 for verdict in verdicts])
        pooled.append((errors[which] / np.maximum([verdict.sigma_rad for verdict in verdicts], 1e-9))[judged])
    return np.concatenate(pooled)


CHIPS = {
    "6 ports, crosstalk that warms": [(6, seed, "A") for seed in range(4)],
    "6 ports, crosstalk of both signs": [(6, seed, "B") for seed in range(4)],
    "12 ports, crosstalk that warms": [(12, 1, "A")],
    "12 ports, crosstalk of both signs": [(12, 1, "B")],
}


@pytest.mark.parametrize("which", [0, 1], ids=["thetas", "phis"])
@pytest.mark.parametrize("name", CHIPS)
def test_errors_are_as_large_as_stated(name, which):
    z = over_sigma(which, CHIPS[name])
    assert 0.6 < np.sqrt(np.mean(z**2)) < 1.5
    assert np.quantile(np.abs(z), 0.99) < 4.0


@pytest.mark.parametrize("name", CHIPS)
def test_phis_are_known_better_than_heat_of_neighbours_moves_them(name):
    phis = np.concatenate([started(*chip)[1][1] for chip in CHIPS[name]])
    assert np.sqrt(np.mean(phis**2)) < 0.12


@pytest.mark.parametrize("name", [name for name in CHIPS if "warms" in name])
def test_mean_crosstalk_brings_phases_nearer(name):
    for ports, seed, preset in CHIPS[name]:
        chip, found = LabMesh(ports, seed, preset), started(ports, seed, preset)[0]
        power = np.random.default_rng(1).uniform(0.0, 2.0, (40, len(found.parameters.offset)))
        power = power * np.pi / chip.nominal_efficiency
        left = [single_errors(chip, twin.phases(power), power) for twin in (found.warmed, found.parameters)]
        assert left[0] < 0.9 * left[1]


def single_errors(chip, phases, power_w):
    """Rms deviation of single settings' thetas from their mean error."""
    errors = np.angle(np.exp(1j * (phases[:, chip.layout.mesh_theta] - chip.phases(power_w)[0])))
    return np.sqrt(np.mean((errors - errors.mean(axis=0)) ** 2))


def test_phases_too_uncertain_are_not_called_good(monkeypatch):
    limit = 0.05
    monkeypatch.setattr("calibration._start.MAX_SIGMA_RAD", limit)
    chip = LabMesh(6, 0)
    found = find_start(chip, np.random.default_rng(0), NoiseModel(chip.relative, chip.floor_w), lambda *_: None)
    uncertain = [verdict.sigma_rad > limit for verdict in found.verdicts]
    assert any(uncertain)
    assert [not verdict.good for verdict in found.verdicts] == uncertain
    assert all("errors add up" in verdict.reason for verdict in found.verdicts if not verdict.good)


def test_a_joint_fit_that_ends_farther_from_the_readings_leaves_nothing_behind(monkeypatch):
    def start():
        chip = LabMesh(4, 0)
        return find_start(chip, np.random.default_rng(0), NoiseModel(chip.relative, chip.floor_w), lambda *_: None)

    farther = itertools.count(1.0)
    monkeypatch.setattr(JointFit, "_distance", lambda *_: next(farther))
    discarded = start()
    monkeypatch.setattr(JointFit, "fit", lambda self, parts: setattr(self, "_precision", self._said_by(parts)[0]))
    never = start()
    for name in ("offset", "efficiency"):
        np.testing.assert_allclose(getattr(discarded.parameters, name), getattr(never.parameters, name), rtol=1e-9)
    sigmas = [[verdict.sigma_rad for verdict in found.verdicts] for found in (discarded, never)]
    np.testing.assert_allclose(*sigmas, rtol=1e-6)


@pytest.mark.parametrize("ports", [2, 5, 6])
def test_phases_of_bare_arms_are_pushed_as_light_sees_them(ports):
    layout = LabMesh(ports, 0).layout
    heat, mesh = StartHeat.of(layout), layout.mesh
    rng = np.random.default_rng(ports)
    arms = rng.standard_normal((mesh.depth, 2, ports))
    theta, phi = carried_phases(mesh, arms[None], np.zeros((1, ports)))
    # Without what phases of inputs do, those of the first two columns are 0.
    by_inputs = carried_phases(mesh, np.zeros((ports, mesh.depth, 2, ports)), np.eye(ports))[1].T
    early = np.array([column < 2 for column, _ in mesh.mzis])
    phi = phi[0] - by_inputs @ np.linalg.lstsq(by_inputs[early], phi[0, early], rcond=None)[0]
    # Arms in the order of `StartHeat`: heaters' own, then the bare ones of `bare_arms`, by column, mode and section.
    of_heater = np.zeros(len(layout.heaters))
    of_heater[layout.mesh_theta] = [arms[column, 1, mode] for column, mode in mesh.mzis]
    of_heater[layout.mesh_phi] = [arms[column, 0, mode] for column, mode in mesh.mzis]
    uppers = set(mesh.mzis)
    bare = [
        arms[column, section, mode]
        for column in range(mesh.depth) for mode in range(ports) if (column, mode) not in uppers for section in (0, 1)
    ]  # fmt: skip
    changed = heat.pushed @ np.concatenate([of_heater, bare])
    np.testing.assert_allclose(changed, np.concatenate([theta[0], phi]), atol=1e-9)
