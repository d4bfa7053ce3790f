"""Benches whose chip has another mesh than a complete rectangular one: files and sessions."""

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import bench_fakes
import numpy as np
import pytest
from bench_fakes import calls
from mesh_folders import write_mesh_folder
from test_calibration_record import record_of
from twins import matched_twin
from typer.testing import CliRunner

import optinc_hw
from calibration import calibrate, verify
from optinc_hw.bench import Bench, PhotonicChip, check_bench, read_description
from optinc_hw.cli import app
from optinc_hw.errors import CalibrationError, ConfigurationError, LimitError
from optinc_hw.photonics import (
    ChipLayout,
    MeshLayout,
    RectangularLayout,
    TriangularLayout,
    TwinParameters,
)
from optinc_hw.units import dbm_to_watt
from simulated_instruments import HiddenChip

BENCHES = Path(optinc_hw.__file__).parent.parent / "examples" / "benches"
TRIANGULAR = BENCHES / "four_ports_triangular"
PLACES = [[0, 0], [2, 1], [3, 0], [3, 2], [9, 1]]
TWIN = {"input_amplitude": 0.03, "lo_amplitude": 0.02}


@pytest.fixture
def write(tmp_path):
    return partial(write_mesh_folder, tmp_path / "bench")


@pytest.mark.parametrize(
    ("layout", "mesh", "expected"),
    [
        ("rectangular", None, RectangularLayout(4)),
        ("rectangular", {"missing": [[1, 1]]}, RectangularLayout(4).without([(1, 1)])),
        ("triangular", {}, TriangularLayout(4)),
        ("triangular", {"missing": [[4, 0], [0, 0]]}, TriangularLayout(4).without([(0, 0), (4, 0)])),
        ("custom", {"mzis": PLACES}, MeshLayout(4, tuple(map(tuple, PLACES)))),
        ("custom", {"mzis": PLACES[::-1], "missing": [[3, 0]]}, MeshLayout(4, ((0, 0), (2, 1), (3, 2), (9, 1)))),
        ("custom", {"mzis": []}, MeshLayout(4, ())),
    ],
)
def test_a_chip_file_may_describe_any_mesh(write, layout, mesh, expected):
    wired = ChipLayout(4, expected)
    folder = write(layout, mesh, wired=wired)
    assert read_description(folder).layout == wired
    report = check_bench(folder)
    assert tuple(row.element for row in report.heaters) == wired.heaters
    assert (report.mesh.layout, report.mesh.mzis, report.mesh.columns) == (layout, len(expected.mzis), expected.depth)
    assert report.mesh.missing == tuple(f"mzi_{c}_{m}" for c, m in sorted(map(tuple, (mesh or {}).get("missing", []))))
    assert report.mesh.stuck_rad == {}


@pytest.mark.parametrize("unwired", [[], ["mzi_0_0_theta"], ["mzi_0_0_theta", "mzi_2_2_phi"]])
def test_heaters_of_stuck_phases_may_be_wired_or_not(write, unwired):
    stuck = {"mzi_0_0": {"theta_rad": 0.5}, "mzi_2_2": {"theta_rad": -1, "phi_rad": 2.5}}
    names = ["mzi_0_0_theta", "mzi_2_2_theta", "mzi_2_2_phi"]
    layout = ChipLayout(4, TriangularLayout(4), names)
    folder = write("triangular", {"stuck": stuck}, wired=layout, unwired=unwired)
    description, report = read_description(folder), check_bench(folder)
    assert description.layout == layout
    assert report.mesh.stuck_rad == dict(zip(names, (0.5, -1.0, 2.5), strict=True))
    assert [row.element for row in report.heaters] == [name for name in layout.heaters if name not in unwired]
    assert sum(row.used for row in report.instruments if row.role == "heaters") == 29 - len(unwired)


def place(*numbers):
    return {"mzis": [[0, 0], list(numbers)]}


@pytest.mark.parametrize(
    ("layout", "mesh", "messages"),
    [
        ("hexagonal", None, ["layout: 'hexagonal' is not allowed", "give rectangular, triangular or custom"]),
        ("rectangular", [], ["mesh: [] is not allowed", "give a mapping with mzis"]),
        ("rectangular", {"mising": []}, ["mesh.mising: unknown key (its value is []); did you mean 'missing'?"]),
        ("rectangular", {"missing": [[0, 1]]}, ["mesh.missing.0: the rectangular mesh has no MZI at [0, 1]; column 0"]),
        ("rectangular", {"missing": [[0, 1]]}, ["column 0 has [0, 0], [0, 2]"]),
        ("triangular", {"missing": [[7, 0]]}, ["mesh.missing.0: the triangular", "its columns are 0 to 4"]),
        ("rectangular", {"missing": [[0, 0], [0, 0]]}, ["mesh.missing.1: [0, 0] is listed twice; remove one"]),
        (
            "rectangular",
            {"missing": [[0]]},
            ["mesh.missing.0: [0] is not allowed", "give a list of places [column, up"],
        ),
        ("rectangular", {"missing": [0]}, ["mesh.missing.0: 0 is not allowed", "give a list of places [column, upper"]),
        ("rectangular", {"missing": [["a", 0]]}, ["mesh.missing.0.0: 'a' is not allowed", "give a list of places"]),
        ("rectangular", {"mzis": PLACES}, ["mesh.mzis: layout: rectangular has places of its own; remove mesh.mzis"]),
        (
            "custom",
            None,
            ["mesh.mzis: layout: custom needs the places of the MZIs; add a list of [column, upper mode]"],
        ),
        ("custom", {"mzis": 3}, ["mesh.mzis: 3 is not allowed", "give a list of places [column, upper mode]"]),
        ("custom", place(0, 1), ["mesh.mzis: [0, 0] and [0, 1] share a mode; move one to another column"]),
        ("custom", place(0, 0), ["mesh.mzis: [0, 0] and [0, 0] share a mode"]),
        (
            "custom",
            place(1, 3),
            ["mesh.mzis.1: [1, 3] needs modes 3 and 4; a mesh of 4 ports has 0 to 3", "from 0 to 2"],
        ),
        ("custom", place(-1, 0), ["mesh.mzis.1.0: -1 is not allowed"]),
        ("custom", place(512, 0), ["mesh.mzis.1: column 512 is too far; give a column from 0 to 511"]),
        ("rectangular", {"stuck": {"mzi_0_1": {"phi_rad": 1}}}, ["mesh.stuck.mzi_0_1: the mesh has no MZI", "did you"]),
        ("rectangular", {"stuck": {"mzi_0_0": {}}}, ["mesh.stuck.mzi_0_0: no stuck phase is given; add theta_rad or"]),
        ("rectangular", {"stuck": {"mzi_0_0": {"phi": 1}}}, ["mesh.stuck.mzi_0_0.phi: unknown key", "'phi_rad'?"]),
        ("rectangular", {"stuck": {"mzi_0_0": {"phi_rad": "1"}}}, ["mesh.stuck.mzi_0_0.phi_rad: '1' is not allowed"]),
        ("rectangular", {"stuck": {"mzi_0_0": {"phi_rad": float("inf")}}}, ["phi_rad: inf is not allowed"]),
        (
            "rectangular",
            {"missing": [[0, 0]], "stuck": {"mzi_0_0": {"phi_rad": 1}}},
            ["stuck.mzi_0_0: this MZI is mis"],
        ),
        # The default wiring is that of a complete rectangular mesh.
        (
            "rectangular",
            {"missing": [[1, 1]]},
            ["2 problems", "heaters.mzi_1_1_phi: mzi_1_1 is missing (mesh.missing)"],
        ),
        ("triangular", None, ["heaters.mzi_0_2_phi: a chip of 4 ports with layout: triangular has no heater of this"]),
        ("triangular", None, ["heaters: not wired: mzi_4_0_theta, mzi_4_0_phi; add"]),
    ],
)
def test_a_mesh_that_makes_no_sense_is_refused_with_place_value_and_remedy(write, layout, mesh, messages):
    folder = write(layout, mesh)
    with pytest.raises(ConfigurationError) as caught:
        read_description(folder)
    for message in messages:
        assert message in str(caught.value)
    assert str(folder / "chip.yaml") in str(caught.value)


def test_all_faults_of_a_mesh_are_reported_at_once(write):
    mesh = {"missing": [[0, 1], [5, 0]], "stuck": {"mzi_9_9": {"theta_rad": 0.0}}}
    with pytest.raises(ConfigurationError, match="3 problems:"):
        read_description(write("triangular", mesh))


def test_a_layout_is_known_by_its_content():
    rectangular = ChipLayout(4)
    assert rectangular == ChipLayout(4, RectangularLayout(4)) == ChipLayout(4, MeshLayout(4, rectangular.mesh.mzis))
    assert hash(rectangular) == hash(ChipLayout(4, RectangularLayout(4)))
    assert rectangular != ChipLayout(4, TriangularLayout(4))
    assert rectangular != ChipLayout(4, stuck=["mzi_0_0_phi"])
    # Two ports have one mesh, whatever it is called; its places are the same too.
    np.testing.assert_array_equal(ChipLayout(2, TriangularLayout(2)).heater_sites, ChipLayout(2).heater_sites)
    assert replace(rectangular, stuck=("mzi_0_0_phi", "mzi_1_1_theta")).stuck == ("mzi_0_0_phi", "mzi_1_1_theta")
    assert ChipLayout(4, stuck=["mzi_1_1_theta", "mzi_0_0_phi"]).stuck == ("mzi_0_0_phi", "mzi_1_1_theta")


def test_sites_lie_behind_the_columns_of_the_mesh():
    layout = ChipLayout(4, TriangularLayout(4))
    x = dict(zip(layout.heaters, layout.heater_sites[:, 0], strict=True))
    assert (x["mzi_4_0_phi"], x["mzi_4_0_theta"], x["out_0"], x["att_3"], x["lo"]) == (8.0, 9.0, 11.0, 14.0, 22.0)


def test_a_stuck_heater_is_never_driven(write):
    layout = ChipLayout(4, stuck=["mzi_0_0_theta", "mzi_1_1_phi"])
    stuck = {"mzi_0_0": {"theta_rad": 0.5}, "mzi_1_1": {"phi_rad": 0.0}}
    folder = write("rectangular", {"stuck": stuck}, wired=layout, unwired=["mzi_0_0_theta"])
    voltages = np.where(layout.movable, 2.0, 0.0)
    with Bench.open(folder) as bench:
        bench.set_voltages(voltages)
        (sent,) = [entry[2] for entry in calls("heaters_0", "set_voltages")]
        assert sorted(sent.values()) == [0.0] + [2.0] * 27
        np.testing.assert_array_equal(bench.read_heaters().voltage_v, voltages)
        for name in layout.stuck:
            with pytest.raises(LimitError, match=f"heater {name}: its phase is stuck .* 0.1 V were asked for; nothing"):
                bench.set_voltage(layout.heater_index[name], 0.1)
        chip = PhotonicChip("chip", bench=bench)
        try:
            chip.mzi_0_0_phi.voltage(1.0)
            for stuck_heater in (chip.mzi_0_0_theta, chip.mzi_1_1_phi):
                assert stuck_heater.voltage() == stuck_heater.power() == 0.0
                with pytest.raises(NotImplementedError, match="set"):
                    stuck_heater.voltage(1.0)
        finally:
            chip.close()
        np.testing.assert_array_equal(bench.voltages > 0.0, layout.movable)


@pytest.mark.parametrize("name", sorted(path.name for path in BENCHES.iterdir()))
def test_example_benches_are_valid(name):
    shown = CliRunner().invoke(app, ["check", str(BENCHES / name)])
    assert shown.exit_code == 0, shown.stderr


def test_check_shows_the_mesh():
    shown = CliRunner().invoke(app, ["check", str(TRIANGULAR)], env={"COLUMNS": "120"}).stdout
    for text in ("triangular", "5 in 5 columns", "mzi_3_1", "mzi_2_2_phi at 1.3 rad"):
        assert text in shown
    content = json.loads(CliRunner().invoke(app, ["check", str(TRIANGULAR), "--json"]).stdout)
    assert content["mesh"] == json.loads(json.dumps(asdict(check_bench(TRIANGULAR).mesh)))
    assert content["mesh"]["missing"] == ["mzi_3_1"]
    assert content["mesh"]["stuck_rad"] == {"mzi_2_2_phi": 1.3}


def test_a_simulated_bench_has_the_mesh_of_its_file():
    """The twin of the same mesh predicts the readings; that of a complete mesh of the same chip's parts does not."""
    with Bench.open(TRIANGULAR, simulate=True, seed=3) as bench:
        layout = bench.layout
        assert layout.stuck == ("mzi_2_2_phi",)
        hidden = HiddenChip.from_seed(3, 4, mesh=layout.mesh, stuck_rad=bench.description.chip.mesh.stuck_rad)
        truth, rng = hidden.parameters, np.random.default_rng(0)
        twin = matched_twin(hidden, dbm_to_watt(bench.description.chip.laser.power_dbm))
        bench.light(True)
        powers, readings = [], []
        for _ in range(3):
            power = np.where(layout.movable, rng.uniform(0.0, 0.035, len(layout.heaters)), 0.0)
            bench.set_voltages(np.sqrt(power * truth.resistance_ohm * (1 + truth.resistance_growth_per_w * power)))
            bench.settle()
            powers.append(power)
            readings.append(bench.read_detectors().power_w)
        assert bench.read_heaters().voltage_v[~layout.movable] == 0.0
    assert_predicted(twin, powers, readings)
    moved = replace(twin, offset=twin.offset + 0.3 * ~layout.movable)
    with pytest.raises(AssertionError):
        assert_predicted(moved, powers, readings)


def test_a_record_of_a_mesh_with_gaps_can_be_verified():
    """Nothing but losses of single arms tells the twin of the hidden chip's own parameters from the chip."""
    with Bench.open(TRIANGULAR, simulate=True, seed=3) as bench:
        hidden = HiddenChip.from_seed(3, 4, mesh=bench.layout.mesh, stuck_rad=bench.description.chip.mesh.stuck_rad)
        truth, laser_w = hidden.parameters, dbm_to_watt(bench.description.chip.laser.power_dbm)
        electrical = {"resistance_ohm": truth.resistance_ohm, "beta_per_w": truth.resistance_growth_per_w}
        twin = matched_twin(hidden, laser_w)
        own = np.diagonal(twin.crosstalk)  # heat on bare arms; a record counts it to the efficiency
        twin = replace(twin, crosstalk=twin.crosstalk / own, efficiency=twin.efficiency * own)
        found = verify(bench, record_of(twin, **electrical), settings=5)
        other = TwinParameters.nominal(4, **TWIN, mesh=bench.layout.mesh)
        with pytest.raises(CalibrationError, match="other MZIs or other stuck phases than"):
            verify(bench, record_of(other))
    assert found.settings == 5
    assert found.residual_over_noise < 20.0


def assert_predicted(twin, powers, readings):
    from test_simulated_meshes import predicted

    # Losses of single arms, which the twin does not have, are 0.05 % of the field each, on some twenty arms a path.
    np.testing.assert_allclose(predicted(twin, np.array(powers)), readings, atol=0.02 * np.max(readings))


@pytest.mark.parametrize(
    ("layout", "mesh", "chip", "found"),
    [
        ("triangular", None, ChipLayout(4, TriangularLayout(4)), r"\(layout: triangular\)"),
        ("custom", {"mzis": PLACES}, ChipLayout(4, MeshLayout(4, tuple(map(tuple, PLACES)))), r"\(layout: custom\)"),
        (
            "rectangular",
            {"missing": [[1, 1]]},
            ChipLayout(4, RectangularLayout(4).without([(1, 1)])),
            r"\(layout: rectangular; mzi_1_1 is missing\)",
        ),
        (
            "rectangular",
            {"stuck": {"mzi_0_0": {"phi_rad": 1.0}}},
            ChipLayout(4, stuck=["mzi_0_0_phi"]),
            r"\(layout: rectangular; mzi_0_0_phi is stuck\)",
        ),
    ],
)
def test_calibration_refuses_what_it_cannot_do_before_anything_moves(write, layout, mesh, chip, found):
    with Bench.open(write(layout, mesh, wired=chip)) as bench:
        opened = list(bench_fakes.JOURNAL)
        with pytest.raises(
            ConfigurationError, match=rf"chip\.yaml describes a mesh that cannot be calibrated yet {found}"
        ):
            calibrate(bench)
        assert opened == bench_fakes.JOURNAL
        assert sorted(path.name for path in bench.folder.iterdir()) == [".bench.lock", "chip.yaml", "station.yaml"]
