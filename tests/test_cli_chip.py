"""The optinc command with a simulated bare mesh: calibrated, aged, corrected, refused."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from optinc_hw.bench import Bench
from optinc_hw.cli import app

CHIP = "version: 1\npreset: method_b\nports: 3\nseed: 3\n"
AGED = "drift: {resistance_change: -0.02, efficiency_change: -0.001, offset_rms_rad: 0.3, seed: 1}\n"


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """A bench folder after `optinc calibrate`, and what it printed."""
    folder = tmp_path_factory.mktemp("lab") / "mesh"
    assert run("init", folder, "--kind", "mesh", "--ports", 3).exit_code == 0
    (folder / "hidden_chip.yaml").write_text(CHIP)
    result = run("calibrate", folder, "--simulate", "--budget", 120, "--json")
    assert result.exit_code == 0, result.stderr
    return folder, json.loads(result.stdout)


@pytest.fixture
def folder(calibrated, tmp_path):
    """A copy of it, whose chip has aged."""
    place = tmp_path / "mesh"
    shutil.copytree(calibrated[0], place)
    (place / "hidden_chip.yaml").write_text(CHIP + AGED)
    return place


def test_calibrate_names_what_it_found_and_what_powers_cannot_tell(calibrated):
    _, content = calibrated
    report = content["report"]
    assert sum(report["readings"].values()) == content["quality"]["readings"] == 120
    assert next(iter(report["readings"])) == "dark readings"
    effects = {effect["name"]: effect for effect in report["effects"]}
    crossing = effects["reflectivity of couplers (share that crosses)"]
    assert abs(crossing["value"] - 0.567) < 4.0 * crossing["sigma"] + 0.002  # the preset's
    assert crossing["sigma"] < 0.01
    assert effects["power of a heater for pi"]["value"] == pytest.approx(0.020, rel=0.03)
    assert report["heaters"] == {}
    assert report["correction"] is None
    # Of 3 ports, phases of inputs 1 and 2 against input 0.
    assert any("phases: 2 of 6 combinations are not seen" in line for line in report["unseen"])


def test_recalibrate_corrects_the_record_in_force_and_says_what_moved(folder, tmp_path):
    options = ["--readings", 24, "--out", tmp_path / "drift.nc"]
    before = (folder / "calibration_simulated_0.json").read_bytes()
    result = run("recalibrate", folder, "--simulate", *options)
    assert result.exit_code == 0, result.stderr
    for text in ("correction for drift", "drift settings", "resistances, common", "-2.00 %", "phases, rms"):
        assert text in result.stdout
    rows = json.loads(run("history", folder, "--json").stdout)["records"]
    assert [row["kind"] for row in rows] == ["full", "drift"]
    assert rows[1]["parent_hash"] == rows[0]["content_hash"]
    assert (folder / rows[0]["file"]).read_bytes() == before
    again = run("recalibrate", folder, "--simulate", "--resume", tmp_path / "drift.nc", "--readings", 24, "--json")
    assert again.exit_code == 1  # of another record: that in force has been corrected already
    assert "record was" in again.stderr


def test_a_correction_that_readings_do_not_bear_out_leaves_the_record_in_force(folder):
    """Couplers do not drift: this is another chip."""
    (folder / "hidden_chip.yaml").write_text(CHIP.replace("seed: 3", "seed: 4") + AGED)
    before = (folder / "calibration_simulated_0.json").read_bytes()
    result = run("recalibrate", folder, "--simulate")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "REFUSED" in result.stderr
    assert "the old record stays" in result.stderr
    assert (folder / "calibration_simulated_0.json").read_bytes() == before


def test_recalibrate_needs_a_record_of_a_bare_mesh(calibrated, tmp_path, monkeypatch):
    empty = tmp_path / "mesh"
    shutil.copytree(calibrated[0], empty, ignore=shutil.ignore_patterns("calibration*"))
    result = run("recalibrate", empty, "--simulate")
    assert result.exit_code == 1
    assert "optinc calibrate" in result.stderr
    from test_bench_record import make_record

    assert run("init", tmp_path / "own", "--ports", 2).exit_code == 0
    with Bench.open(tmp_path / "own", simulate=True) as bench:
        bench.save_record(make_record(ports=2))
    result = run("recalibrate", tmp_path / "own", "--simulate")
    assert result.exit_code == 1
    assert "inputs: ports, receivers: power" in result.stderr
    monkeypatch.setattr(Bench, "open", lambda *_, **__: pytest.fail("the bench was opened"))
    assert run("recalibrate", empty, input="").exit_code == 2


def test_verify_programs_targets_and_draws_them(calibrated, tmp_path):
    folder, _ = calibrated
    result = run("verify", folder, "--simulate", "--targets", 1, "--picture", tmp_path / "targets.svg", "--json")
    assert result.exit_code == 0, result.stderr
    content = json.loads(result.stdout)
    assert content["good"] is True
    names = [target["name"] for target in content["programming"]["targets"]]
    assert names == ["Haar 0", "permutation 0"]
    for target in content["programming"]["targets"]:
        assert target["tvd_from_twin"] < 0.005
        assert target["rms_error_over_noise"] < 4.0
    assert (tmp_path / "targets.svg").stat().st_size > 1000
    assert run("verify", folder, "--simulate", "--picture", tmp_path / "none.png").exit_code == 2
    wrong = run("verify", folder, "--simulate", "--targets", 1, "--picture", tmp_path / "none.pixels")
    assert wrong.exit_code == 2
    assert ".png, .svg" in wrong.stderr


def test_verify_says_what_has_changed(folder):
    result = run("verify", folder, "--simulate")
    assert result.exit_code == 1
    assert "no longer good" in result.stdout
    assert "no longer describes this chip" in result.stderr
    assert "optinc recalibrate" in result.stderr


@pytest.mark.parametrize("command", ["discover", "verify"])
def test_a_laser_at_another_wavelength_than_it_was_asked_for_is_named(folder, command, monkeypatch):
    monkeypatch.setattr("drivers.SantecTSL570._ask_wavelength", lambda _: 1552.5e-9)
    result = run(command, folder, "--simulate")
    assert result.exit_code == 1
    assert "wavelength is 1.5525e-06 m although 1.55" in result.stderr
