"""Hidden chips with meshes of any layout, missing MZIs and stuck phases, against the twin's physics and by hand."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import bare_sections, matched_twin, set_heater_powers

from optinc_hw.errors import ConfigurationError, MatrixError
from optinc_hw.photonics import (
    ChipLayout,
    ChipModel,
    MeshImperfections,
    MeshLayout,
    MeshPhases,
    RectangularLayout,
    TriangularLayout,
    TwinParameters,
    mesh_matrix,
)
from simulated_instruments import HiddenChip, HiddenEffects

LASER_W, WAVELENGTH_M = 0.01, 1550e-9
# All effects but unequal arm losses, which the twin does not have; bare arms as warm as heated ones.
EFFECTS = HiddenEffects(arm_loss_rms=0.0, bare_arm_factor=1.0, crosstalk_strength=0.05)
SPARSE = MeshLayout(6, ((0, 0), (0, 4), (1, 2), (4, 1), (4, 3), (5, 0)))
MESHES = {
    "triangular 2": TriangularLayout(2),
    "triangular 5": TriangularLayout(5),
    "triangular, one missing": TriangularLayout(5).without([(3, 1)]),
    "rectangular, two missing": RectangularLayout(4).without([(1, 1), (3, 1)]),
    "empty columns": SPARSE,
    "no MZI at all": MeshLayout(3, ()),
}
every_mesh = pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)


def lit_chip(mesh, seed=1, stuck_rad=None, effects=EFFECTS):
    chip = HiddenChip.from_seed(seed, mesh.ports, mesh=mesh, stuck_rad=stuck_rad, effects=effects)
    chip.set_laser(LASER_W, WAVELENGTH_M)
    return chip


def readings(chip, power_w):
    rows = []
    for row in power_w:
        set_heater_powers(chip, row)
        rows.append(chip.detector_powers() * chip.parameters.gain + chip.parameters.dark_w)
    return np.stack(rows)


def predicted(twin, power_w):
    """Readings of a twin by the matrix of its mesh, written out without the chip model."""
    layout, rows = twin.layout, []
    for phase in twin.phases(power_w):

        def bar(index, eta, phase=phase):
            cosines, sines = np.cos(eta).prod(-1), np.sin(eta).prod(-1)
            return cosines * np.exp(1j * phase[index]) - sines

        fields = twin.input_amplitude * bar(layout.input_theta, twin.input_eta) * np.exp(1j * phase[layout.input_phi])
        mesh = mesh_matrix(
            MeshPhases(layout.mesh, phase[layout.mesh_theta], phase[layout.mesh_phi], phase[layout.output_phase]),
            MeshImperfections(*twin.mesh_eta.T, twin.mzi_transmission),
        )
        fields = twin.output_transmission * bar(layout.attenuator, twin.attenuator_eta) * (mesh @ fields)
        lo = twin.lo_amplitude * np.exp(1j * phase[layout.lo])
        cosine, sine = np.cos(twin.receiver_eta), np.sin(twin.receiver_eta)
        pairs = np.concatenate([cosine * fields + 1j * sine * lo, 1j * sine * fields + cosine * lo])
        rows.append(twin.gain * np.abs(pairs) ** 2 + twin.dark_w)
    return np.stack(rows)


def random_powers(layout, seed=0, rows=4):
    return np.random.default_rng(seed).uniform(0.0, 0.05, (rows, len(layout.heaters)))


@every_mesh
def test_the_twin_of_any_mesh_predicts_its_chip(mesh):
    chip = lit_chip(mesh)
    twin, power = matched_twin(chip, LASER_W), random_powers(chip.layout)
    np.testing.assert_allclose(predicted(twin, power), readings(chip, power), rtol=1e-9, atol=1e-14)


@every_mesh
def test_the_chip_model_of_any_mesh_predicts_the_chip(mesh):
    chip = lit_chip(mesh, seed=2)
    twin, power = matched_twin(chip, LASER_W), random_powers(chip.layout)
    model = ChipModel.from_parameters(twin)
    np.testing.assert_allclose(model.readings(twin, power), readings(chip, power), rtol=1e-9, atol=1e-14)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_placement_of_mzis_agrees_with_its_twin(data):
    ports = data.draw(st.integers(2, 6))
    wanted = data.draw(st.lists(st.tuples(st.integers(0, 7), st.integers(0, ports - 2)), max_size=12))
    placed: list[tuple[int, int]] = []
    for column, mode in wanted:
        if all(c != column or abs(m - mode) > 1 for c, m in placed):
            placed.append((column, mode))
    chip = lit_chip(MeshLayout(ports, tuple(placed)), data.draw(st.integers(0, 1000)))
    power = random_powers(chip.layout, rows=2)
    twin = matched_twin(chip, LASER_W)
    np.testing.assert_allclose(predicted(twin, power), readings(chip, power), rtol=1e-8, atol=1e-14)


@every_mesh
def test_every_bare_waveguide_of_the_mesh_is_known(mesh):
    layout = ChipLayout(mesh.ports, mesh)
    index, columns = bare_sections(layout), layout.mesh.depth
    # Two sections a mode and column, less the two heated ones of each MZI, and the dark arms at both ends.
    assert len(set(index)) == len(index) == 2 * mesh.ports * (1 + columns) - 2 * len(mesh.mzis)


def test_one_light_path_by_hand():
    """Four modes, MZIs (0, 0) and (3, 1): input 0 in cross twice leaves at mode 2, each MZI turning it by i."""
    chip = lit_chip(MeshLayout(4, ((0, 0), (3, 1))), effects=HiddenEffects.none())
    index, pi_power = chip.layout.heater_index, chip.effects.pi_power_w
    power = np.zeros(len(index))
    power[[index["in_0_theta"], index["att_2"]]] = pi_power
    share = chip.effects.lo_fraction
    signal, lo = np.sqrt((1 - share) * LASER_W / 4), np.sqrt(share * LASER_W / 4)
    for turns in (0.0, 0.3):  # an MZI in cross with external phase phi: i exp(i phi) on the way down
        power[index["mzi_3_1_phi"]] = turns / np.pi * pi_power
        set_heater_powers(chip, power)
        field = (-signal) * (1j * 1j * np.exp(1j * turns)) * (-1.0)
        expected = np.abs([field + 1j * lo, 1j * field + lo]) ** 2 / 2.0
        np.testing.assert_allclose(chip.detector_powers()[[2, 6]], expected, rtol=1e-9)
        np.testing.assert_allclose(chip.detector_powers()[[0, 1, 3]], lo**2 / 2.0, rtol=1e-9)


def test_a_stuck_phase_is_where_it_was_said_to_be_and_its_heater_does_nothing():
    stuck = {"mzi_2_0_theta": 0.7, "mzi_3_1_phi": 1.9}
    ideal = lit_chip(TriangularLayout(4), stuck_rad=stuck, effects=HiddenEffects.none())
    free = lit_chip(TriangularLayout(4), effects=HiddenEffects.none())
    power = random_powers(ideal.layout)
    before = readings(ideal, power)
    for name, phase in stuck.items():
        power[:, ideal.layout.heater_index[name]] = phase / np.pi * free.effects.pi_power_w
    np.testing.assert_allclose(before, readings(free, power), rtol=1e-9)
    np.testing.assert_array_equal(before, readings(ideal, power))


def test_the_twin_of_a_chip_with_stuck_phases_does_not_follow_their_heaters():
    stuck = {"mzi_0_0_theta": 2.0, "mzi_4_0_theta": -0.4, "mzi_1_1_phi": 0.2}
    chip = lit_chip(TriangularLayout(4), stuck_rad=stuck)
    twin = matched_twin(chip, LASER_W)
    assert twin.layout == chip.layout
    for name in ("mzi_0_0_theta", "mzi_4_0_theta"):
        assert twin.offset[twin.layout.heater_index[name]] == pytest.approx(stuck[name])
    power = random_powers(chip.layout)
    np.testing.assert_allclose(predicted(twin, power), readings(chip, power), rtol=1e-9, atol=1e-14)
    moved = power.copy()
    moved[:, ~chip.layout.movable] = 0.01
    np.testing.assert_array_equal(twin.phases(moved), twin.phases(power))
    np.testing.assert_array_equal(readings(chip, moved), readings(chip, power))


def test_the_nominal_twin_holds_its_stuck_phases():
    stuck = {"mzi_0_2_phi": 1.1, "mzi_1_1_theta": -2.0}
    mesh = RectangularLayout(4).without([(2, 0)])
    twin = TwinParameters.nominal(4, input_amplitude=0.03, lo_amplitude=0.02, mesh=mesh, stuck_rad=stuck)
    assert twin.layout == ChipLayout(4, mesh, stuck)
    assert twin.mesh_eta.shape == (5, 2)
    phases = twin.phases(np.full(len(twin.offset), 0.01))
    for name, index in twin.layout.heater_index.items():
        assert phases[index] == pytest.approx(stuck.get(name, np.pi / 2))


def test_the_draws_of_a_rectangular_chip_are_as_ever():
    chip, named = HiddenChip.from_seed(0, 4), HiddenChip.from_seed(0, 4, mesh=RectangularLayout(4))
    assert chip.layout == named.layout
    assert chip.parameters.to_lists() == named.parameters.to_lists()
    np.testing.assert_allclose(chip.parameters.offset_rad[:2], [4.15082635, 0.64069074], rtol=1e-7)
    np.testing.assert_allclose(chip.parameters.dark_w[-1], 2.4792965171918514e-09, rtol=1e-12)


@pytest.mark.parametrize("stuck", [{}, {"mzi_1_2_theta": 0.5}])
def test_a_chip_survives_its_file(tmp_path, stuck):
    chip = lit_chip(SPARSE, stuck_rad=stuck)
    chip.to_file(tmp_path / "chip.json")
    again = HiddenChip.from_file(tmp_path / "chip.json")
    again.set_laser(LASER_W, WAVELENGTH_M)
    assert again.layout == chip.layout
    power = random_powers(chip.layout)
    np.testing.assert_array_equal(readings(again, power), readings(chip, power))


def test_a_rectangular_chip_writes_the_file_that_it_always_wrote(tmp_path):
    HiddenChip.from_seed(0, 2).to_file(tmp_path / "chip.json")
    content = json.loads((tmp_path / "chip.json").read_text())
    assert set(content) == {"format", "version", "ports", "noise_entropy", "effects", "parameters"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("mesh", [[0, 0], [0, 1]], "share a mode"),
        ("mesh", [[0, 5]], r"MZI \(0, 5\) needs modes 5 and 6"),
        ("mesh", [[0, 0]], "has shape"),
        ("mesh", 7, "does not hold together"),
        ("mesh", [0], "an MZI is a pair"),
        ("stuck", ["mzi_9_9_theta"], "mzi_9_9_theta: only heaters of the mesh's MZIs can be stuck"),
        ("stuck", 1, "does not hold together"),
    ],
)
def test_a_file_whose_mesh_does_not_fit_is_refused(tmp_path, key, value, message):
    lit_chip(SPARSE).to_file(tmp_path / "chip.json")
    content = json.loads((tmp_path / "chip.json").read_text()) | {key: value}
    (tmp_path / "chip.json").write_text(json.dumps(content))
    with pytest.raises(ConfigurationError, match=message):
        HiddenChip.from_file(tmp_path / "chip.json")


def test_what_cannot_be_stuck_is_refused():
    with pytest.raises(ConfigurationError, match="mzi_0_0_phi cannot be stuck at nan rad"):
        HiddenChip.from_seed(0, 2, stuck_rad={"mzi_0_0_phi": float("nan")})
    with pytest.raises(MatrixError, match="lo: only heaters of the mesh's MZIs can be stuck"):
        HiddenChip.from_seed(0, 2, stuck_rad={"lo": 0.0})
    with pytest.raises(MatrixError, match="the mesh has 6 modes, the chip 4 ports"):
        HiddenChip.from_seed(0, 4, mesh=SPARSE)
