"""Records, twins and programmed matrices of chips whose mesh is not a complete rectangular one."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from mesh_folders import write_mesh_folder
from test_calibration_record import assert_same_twin, record_of
from twins import matched_twin

from optinc_hw.bench import Bench, BenchTileRunner, CalibrationRecord
from optinc_hw.errors import CalibrationError, MatrixError
from optinc_hw.photonics import (
    ChipLayout,
    ChipModel,
    MeshLayout,
    RectangularLayout,
    TriangularLayout,
    TwinParameters,
    program_matrix,
)
from simulated_instruments import HiddenChip, HiddenEffects

PLACES = [[0, 0], [2, 1], [3, 0], [3, 2], [9, 1]]
TWIN = {"input_amplitude": 0.03, "lo_amplitude": 0.02}


@pytest.fixture
def write(tmp_path):
    return partial(write_mesh_folder, tmp_path / "bench")


@pytest.mark.parametrize(
    ("mesh", "stuck"),
    [
        (TriangularLayout(4), {}),
        (MeshLayout(4, tuple(map(tuple, PLACES))), {"mzi_9_1_theta": 0.3, "mzi_0_0_phi": -2.0}),
        (MeshLayout(3, ()), {}),
        (RectangularLayout(3), {"mzi_1_1_phi": 1.0}),
    ],
)
def test_a_record_keeps_mesh_and_stuck_phases(tmp_path, mesh, stuck):
    twin = TwinParameters.nominal(mesh.ports, **TWIN, mesh=mesh, stuck_rad=stuck)
    record_of(twin).save(tmp_path / "record.json")
    loaded = CalibrationRecord.load(tmp_path / "record.json")
    assert loaded == record_of(twin)
    assert loaded.layout == loaded.twin().layout == ChipLayout(mesh.ports, mesh, stuck)
    assert_same_twin(loaded.twin(), twin)
    content = json.loads((tmp_path / "record.json").read_text())
    assert set(content["mesh"]) == {f"mzi_{c}_{m}" for c, m in mesh.mzis}
    assert content.get("stuck", []) == list(loaded.layout.stuck)
    assert ("stuck" in content) == bool(stuck)  # records of chips without any stay as they were


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stuck": ["mzi_7_7_phi"]}, "mesh and stuck describe no chip of 4 ports: mzi_7_7_phi: only heaters"),
        ({"stuck": ["lo"]}, "mesh and stuck describe no chip of 4 ports: lo: only heaters"),
        ({"mesh": {}}, "heaters do not name exactly those of a chip of 4 ports and this mesh"),
        ({"mesh": {"mzi_0": {}}}, "mesh.mzi_0"),
    ],
)
def test_a_record_whose_parts_do_not_agree_is_refused(tmp_path, changes, message):
    record_of(TwinParameters.nominal(4, **TWIN, mesh=TriangularLayout(4))).save(tmp_path / "record.json")
    content = json.loads((tmp_path / "record.json").read_text())
    for key, value in changes.items():
        one = next(iter(content["mesh"].values()))
        content[key] = dict.fromkeys(value, one) if value and isinstance(value, dict) else value
    (tmp_path / "record.json").write_text(json.dumps(content))
    with pytest.raises(CalibrationError, match=message):
        CalibrationRecord.load(tmp_path / "record.json")


@pytest.mark.parametrize("ports", [2, 3, 4])
def test_matrices_are_programmed_on_triangular_meshes(ports):
    effects = HiddenEffects(arm_loss_rms=0.0)
    chip = HiddenChip.from_seed(ports, ports, mesh=TriangularLayout(ports), effects=effects)
    twin, rng = matched_twin(chip, 0.01), np.random.default_rng(ports)
    matrix, amplitudes = rng.uniform(-1, 1, (ports, ports)), rng.uniform(0.2, 1.0, (3, ports))
    programmed = program_matrix(twin, 0.8 * matrix / np.linalg.norm(matrix, 2))
    seen = ChipModel.from_parameters(twin).readings(twin, programmed.drive(amplitudes))
    np.testing.assert_allclose(programmed.decode(seen), amplitudes @ programmed.matrix.T, atol=1e-5)


@pytest.mark.parametrize(
    ("mesh", "stuck", "message"),
    [
        (
            TriangularLayout(4).without([(1, 1)]),
            {},
            r"mesh \(5 MZIs in 5 columns\) is not a complete rectangular or tri",
        ),
        (RectangularLayout(4).without([(1, 1)]), {}, r"mesh \(5 MZIs in 4 columns\) is not a complete"),
        (None, {"mzi_1_1_phi": 0.4}, r"phases of this chip are stuck \(mzi_1_1_phi\)"),
    ],
)
def test_matrices_are_not_programmed_on_meshes_with_gaps(mesh, stuck, message):
    twin = TwinParameters.nominal(4, **TWIN, mesh=mesh, stuck_rad=stuck)
    with pytest.raises(MatrixError, match=message):
        program_matrix(twin, 0.5 * np.eye(4))


def test_a_record_may_know_more_stuck_heaters_than_chip_yaml_but_not_fewer(write):
    twin = TwinParameters.nominal(4, **TWIN)
    more, fewer = (ChipLayout(4, stuck=names) for names in (("mzi_0_0_phi", "mzi_1_1_theta"), ("mzi_0_0_phi",)))
    assert fewer.admits(more)
    assert not more.admits(fewer)
    assert not fewer.admits(ChipLayout(4, RectangularLayout(4).without([(2, 0)]), ("mzi_0_0_phi",)))
    assert not fewer.admits(ChipLayout(4, stuck=fewer.stuck, receivers="power"))
    with Bench.open(write("rectangular", {"stuck": {"mzi_0_0": {"phi_rad": 1.3}}}, wired=fewer)) as bench:
        bench.save_record(record_of(replace(twin, stuck=more.stuck)))
        assert bench.require_record().layout == more
        with pytest.raises(CalibrationError, match="other MZIs or other stuck phases"):
            bench.save_record(record_of(twin))


def test_a_bench_takes_only_records_and_twins_of_its_own_mesh(write):
    mesh = TriangularLayout(4)
    own, other = (TwinParameters.nominal(4, **TWIN, mesh=each) for each in (mesh, None))
    broken = replace(own, stuck=("mzi_0_0_phi",))
    with Bench.open(write("triangular", wired=ChipLayout(4, mesh))) as bench:
        path = bench.save_record(record_of(own))
        assert bench.require_record().layout == bench.layout
        with pytest.raises(CalibrationError, match=r"of a chip with other MZIs or other stuck phases than chip\.yaml"):
            bench.save_record(record_of(other))
        for twin in (other, broken):
            with pytest.raises(CalibrationError, match="the twin has other MZIs or other stuck phases"):
                BenchTileRunner(bench, twin)
        assert bench.description.folder / path.name == path
    with Bench.open(bench.folder) as again:
        assert_same_twin(again.require_record().twin(), own)
