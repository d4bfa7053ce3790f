"""The start of meshes so large that the thetas of the first half come from the inputs; truth only judges."""

import numpy as np
import pytest
from _lab_mesh import LabMesh, phase_errors

from calibration._start import find_start
from calibration._twin_fit import NoiseModel


def start(chip, seed=0):
    return find_start(chip, np.random.default_rng(seed), NoiseModel(chip.relative, chip.floor_w), lambda *_: None)


def errors(chip, found):
    return phase_errors(chip, found.parameters.offset, found.parameters.efficiency)


@pytest.mark.parametrize(("ports", "preset"), [(13, "A"), (14, "B")])
def test_both_ways_meet(ports, preset):
    chip = LabMesh(ports, 0, preset)
    found = start(chip)
    theta, phi = errors(chip, found)
    assert np.abs(theta).max() < 0.3
    assert np.sqrt(np.mean(phi**2)) <= 0.35
    assert chip.readings <= 1300
    assert found.doubt == ""
    assert all(verdict.good for verdict in found.verdicts)


@pytest.mark.parametrize(("seed", "name"), [(1, "mzi_2_4_theta"), (2, "mzi_3_5_theta")])
def test_a_dead_theta_near_the_inputs_is_named_and_no_theta_called_good_is_wrong(seed, name):
    chip = LabMesh(13, seed, dead=(name,))
    found = start(chip)
    assert [verdict.heater for verdict in found.verdicts if verdict.dead] == [name]
    good = np.array([verdict.good for verdict in found.verdicts[0::2]])
    assert good.sum() >= len(good) // 3
    assert np.abs(errors(chip, found)[0][good]).max() < 0.4
