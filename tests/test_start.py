"""The start of a bare mesh on chips simulated arm by arm; truth is read only to judge."""

import numpy as np
import pytest
from _lab_mesh import LabMesh, phase_errors

from calibration._start import find_start
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout


def start(chip, seed=0):
    steps = []
    found = find_start(
        chip, np.random.default_rng(seed), NoiseModel(chip.relative, chip.floor_w), lambda *step: steps.append(step)
    )
    assert len(found.data.lit) == chip.readings
    assert {stage for stage, _, _ in steps} == {"start_theta", "start_phi"}
    return found


def errors(chip, found):
    return phase_errors(chip, found.parameters.offset, found.parameters.efficiency)


def rms(values):
    return float(np.sqrt(np.mean(values**2)))


@pytest.mark.parametrize("preset", ["A", "B"])
@pytest.mark.parametrize("seed", range(5))
def test_six_ports_from_nothing(seed, preset):
    chip = LabMesh(6, seed, preset)
    found = start(chip, seed)
    theta, phi = errors(chip, found)
    assert np.abs(theta).max() < 0.3
    assert rms(theta) <= 0.1
    assert rms(phi) <= 0.3
    assert chip.readings <= 200
    assert found.check_tvd < 0.15
    assert found.dead_detectors == ()
    assert len(found.verdicts) == 30
    assert named(chip, found) == set()


@pytest.mark.parametrize(("ports", "seed"), [(2, 0), (3, 1), (4, 2), (5, 3), (7, 4)])
def test_small_and_odd_meshes(ports, seed):
    chip = LabMesh(ports, seed)
    theta, phi = errors(chip, start(chip, seed))
    assert np.abs(theta).max() < 0.3
    assert np.abs(phi).max() < 0.8


def test_twelve_ports():
    chip = LabMesh(12, 0, "B")
    found = start(chip)
    theta, phi = errors(chip, found)
    assert np.abs(theta).max() < 0.3
    assert rms(theta) <= 0.1
    assert rms(phi) <= 0.3
    assert chip.readings <= 700
    assert found.doubt == ""


@pytest.mark.parametrize("scale", [0.82, 1.19])
def test_the_nominal_efficiency_may_be_wrong_by_a_fifth(scale):
    chip = LabMesh(6, 1, efficiency=scale)
    found = start(chip)
    np.testing.assert_allclose(found.parameters.efficiency / chip.nominal_efficiency, scale, rtol=0.05)
    assert np.abs(errors(chip, found)[0]).max() < 0.3


def test_mean_coupler_angle_is_learned():
    excess = [start(LabMesh(8, seed, "B"), seed).parameters.mesh_eta[0, 0] - np.pi / 4 for seed in range(2)]
    np.testing.assert_allclose(excess, 0.067, atol=0.03)


def test_a_dead_detector_is_named_and_the_rest_is_found():
    chip = LabMesh(6, 1, blind=(2,))
    found = start(chip)
    assert found.dead_detectors == ("rx_2",)
    assert np.isnan(found.data.readings_w[:, 2]).all()
    assert np.abs(errors(chip, found)[0]).max() < 0.3


DEAD = [
    ("mzi_1_1_phi",), ("mzi_2_0_theta",), ("mzi_4_2_phi",), ("mzi_4_4_theta",), ("mzi_3_1_theta", "mzi_3_3_phi"),
]  # fmt: skip


def named(chip, found):
    verdicts = {verdict.heater for verdict in found.verdicts if verdict.dead}
    assert verdicts == set(found.parameters.stuck)
    return verdicts


@pytest.mark.parametrize("names", DEAD)
def test_dead_heaters_and_no_others_are_called_dead(names):
    chip = LabMesh(6, 0, dead=names)
    found = start(chip)
    assert named(chip, found) == set(names)
    assert all(verdict.reason and not verdict.good for verdict in found.verdicts if verdict.dead)


@pytest.mark.parametrize("name", ["mzi_3_1_theta", "mzi_4_2_theta"])
def test_beside_a_dead_heater_no_phase_called_good_is_wrong(name):
    chip = LabMesh(8, 1, dead=(name,))
    found = start(chip)
    assert named(chip, found) == {name}
    good = np.array([verdict.good for verdict in found.verdicts[0::2]])
    assert good.sum() > len(good) // 2
    assert np.abs(errors(chip, found)[0][good]).max() < 0.3


def test_settings_keep_within_the_heaters_limits():
    chip = LabMesh(4, 0)
    chip.max_power_w = chip.max_power_w * 0.72  # 1.8 pi at most; the probe asserts it
    start(chip)


def test_same_seed_same_settings():
    first, second = (start(LabMesh(4, 3), 7) for _ in range(2))
    np.testing.assert_array_equal(first.data.power_w, second.data.power_w)
    np.testing.assert_array_equal(first.parameters.offset, second.parameters.offset)


def test_noise_alone_is_no_start():
    chip = LabMesh(4, 0)
    chip.gain[:] = 0.0
    with pytest.raises(CalibrationError, match="detectors show light"):
        start(chip)


def test_a_hopeless_chip_is_refused():
    chip = LabMesh(6, 0, relative=1.0)
    with pytest.raises(CalibrationError, match="does not predict random settings"):
        start(chip)


def test_a_power_limit_without_room_is_refused():
    chip = LabMesh(4, 0)
    chip.max_total_power_w = 0.1
    with pytest.raises(CalibrationError, match=r"power limit of 0\.1 W"):
        start(chip)


def test_chips_with_modulators_are_refused():
    chip = LabMesh(4, 0)
    chip.layout = ChipLayout(4)
    with pytest.raises(CalibrationError, match="bare mesh"):
        find_start(chip, np.random.default_rng(0), NoiseModel(1e-3, 1e-8), lambda *_: None)
