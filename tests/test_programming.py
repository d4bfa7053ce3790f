"""Programmed targets on a simulated bench whose record is the truth about its chip, or a wrong one."""

import re
import shutil

import numpy as np
import pytest
from test_bench_record import make_record
from true_records import TrueMesh

from calibration import plot_programming, random_targets, verify_programming
from optinc_hw import Bench
from optinc_hw.errors import CalibrationError, LimitError, MatrixError
from optinc_hw.photonics import program_unitary

PORTS = 4


@pytest.fixture(scope="module")
def mesh():
    return TrueMesh.of("method_b", PORTS, 2)


@pytest.fixture(scope="module")
def programmed(mesh):
    """Targets, and what the chip made of them with its true twin."""
    targets = random_targets(PORTS, 2, np.random.default_rng(1))
    return targets, verified(mesh, mesh.record(), targets)


def verified(mesh, record, targets):
    with mesh.bench() as bench:
        found = verify_programming(bench, record, targets)
        assert not bench.voltages.any()
        assert bench.readings == PORTS * len(targets)
    return found


def test_targets_come_out_as_the_true_twin_predicts(programmed):
    targets, found = programmed
    assert [one.name for one in found.targets] == ["Haar 0", "Haar 1", "permutation 0", "permutation 1"]
    for one in found.targets:
        assert one.target == pytest.approx(targets[one.name])
        assert one.measured.sum(axis=0) == pytest.approx(np.ones(PORTS))
        # Noise, and the steps of the sources: 16 bits.
        assert 0.4 < one.rms_error_over_noise < 2.5
        assert one.tvd_from_twin < 0.002
        assert one.tvd == pytest.approx(one.predicted_tvd, abs=0.002)
    assert all(one.limiting for one in found.targets[2:])
    # Couplers that cross 56.7 % never bring all light to one output: a permutation is what they do worst.
    assert min(one.tvd for one in found.targets[2:]) > 0.01
    haar = found.targets[:2]
    assert all(one.amplitude_fidelity > 0.98 for one in haar)
    assert max(found.limiting.values()) <= 4
    text = str(found)
    assert "permutation 1: fidelity" in text
    assert "MZIs that limit: mzi_" in text
    content = found.to_json_dict()
    assert content["targets"][0]["tvd"] == haar[0].tvd
    assert content["targets"][2]["limiting"][0]["cause"] == "clipped"


def test_a_wrong_twin_shows_in_noise_units_and_in_the_distance_from_it(mesh):
    twin = mesh.twin
    wrong = twin.offset.copy()
    wrong[twin.layout.heater_index["mzi_1_1_theta"]] += 0.3
    found = verified(mesh, mesh.record(offset=wrong), random_targets(PORTS, 1, np.random.default_rng(1)))
    for one in found.targets:
        assert one.rms_error_over_noise > 20.0
        assert one.tvd_from_twin > 0.01
        assert one.fidelity > 0.9  # it believes in itself


def test_a_dead_detector_is_an_error_against_the_twin(mesh):
    with mesh.bench(truth={"dead_detectors": ["rx_1"]}) as bench:
        found = verify_programming(bench, mesh.record(), {"identity": np.eye(PORTS)})
    (one,) = found.targets
    assert one.measured.sum(axis=0) == pytest.approx(np.ones(PORTS))
    assert one.rms_error_over_noise > 20.0


def test_the_picture_shows_target_prediction_measurement_and_difference(programmed):
    _, found = programmed
    figure = plot_programming(found)
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 16
    worst = max(found.targets, key=lambda one: one.tvd_from_twin)
    np.testing.assert_allclose(panels[0].images[0].get_array(), 100.0 * np.abs(worst.target) ** 2)
    np.testing.assert_allclose(panels[3].images[0].get_array(), 100.0 * (worst.measured - worst.predicted))
    assert len([axes for axes in plot_programming(found, most=1).axes if axes.images]) == 4


def test_a_target_beyond_the_total_power_costs_no_reading_of_the_others(mesh, tmp_path):
    """Of two targets one needs more than the limit of all heaters together, though no heater more than its own."""
    targets = random_targets(PORTS, 4, np.random.default_rng(1))
    needed = {name: program_unitary(mesh.twin, target, 0.05).power_w.sum() for name, target in targets.items()}
    least, most = min(needed, key=needed.get), max(needed, key=needed.get)
    with mesh.bench() as bench:
        shutil.copytree(bench.folder, tmp_path / "bench")
    file = tmp_path / "bench" / "chip.yaml"
    text, limit = file.read_text(), (needed[least] + needed[most]) / 2.0
    file.write_text(re.sub("total_power_w: [0-9.]+", f"total_power_w: {limit:.4f}", text))
    pair = {least: targets[least], most: targets[most]}
    with Bench.open(tmp_path / "bench", simulate=True) as bench:
        lit = []
        bench.light = lambda on: lit.append(on)
        with pytest.raises(LimitError, match=rf"target '{most}': all heaters together: .*limits.total_power_w = "):
            verify_programming(bench, mesh.record(), pair)
        assert bench.readings == 0
        assert not lit
        assert not bench.voltages.any()
        del bench.light
        (one,) = verify_programming(bench, mesh.record(), {least: pair[least]}).targets
        assert one.name == least


def test_counts_ports_records_and_targets_of_another_kind_are_refused(mesh):
    rng, record, unit = np.random.default_rng(0), mesh.record(), np.eye(PORTS)
    for ports, count in ((PORTS, -1), (PORTS, 2.5), (PORTS, True), (1, 1), ("4", 1)):
        with pytest.raises(CalibrationError, match="must be a whole number"):
            random_targets(ports, count, rng)
    with mesh.bench() as bench:
        for targets in ([unit], unit, "identity", None):
            with pytest.raises(CalibrationError, match="give a dict: unitaries by name"):
                verify_programming(bench, record, targets)
        with pytest.raises(CalibrationError, match="the name of a target must be a text"):
            verify_programming(bench, record, {1: unit})
        for other in (None, "calibration.json", record.model_dump()):
            with pytest.raises(CalibrationError, match="no calibration record; give a CalibrationRecord"):
                verify_programming(bench, other, {"identity": unit})
        assert bench.readings == 0


def test_what_cannot_be_programmed_is_refused_before_anything_is_driven(mesh):
    record = mesh.record()
    with mesh.bench() as bench:
        with pytest.raises(CalibrationError, match="no target"):
            verify_programming(bench, record, {})
        with pytest.raises(MatrixError, match=r"target 'zero': .*unitary"):
            verify_programming(bench, record, {"zero": np.zeros((PORTS, PORTS))})
        assert bench.readings == 0
    with Bench.simulated(2) as bench, pytest.raises(CalibrationError, match="inputs: ports, receivers: power"):
        verify_programming(bench, make_record(2), {"identity": np.eye(2)})
