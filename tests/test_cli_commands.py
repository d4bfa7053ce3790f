"""The optinc command: what goes to stdout and stderr, and how it exits."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import optinc_hw
from optinc_hw.bench import Bench, check_bench
from optinc_hw.cli import app
from optinc_hw.demo import DemoSummary
from optinc_hw.errors import OptincError


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "bench"
    assert run("init", place, "--ports", 2).exit_code == 0
    return place


def test_version_and_help():
    assert run("--version").stdout == f"optinc-hw {optinc_hw.__version__}\n"
    shown = run("--help")
    assert shown.exit_code == 0
    for command in ("demo", "check", "calibrate", "verify", "init", "host", "compare", "doctor"):
        assert command in shown.stdout


def test_every_command_that_a_message_or_page_advises_exists():
    root = Path(optinc_hw.__file__).parent.parent
    packages = ("optinc_hw", "calibration", "drivers", "simulated_instruments")
    pages = [root / "README.md", *(page for top in packages for page in (root / top).rglob("*.py"))]
    pages += (root / "docs").rglob("*.md")
    advised = {name for page in pages for name in re.findall(r"`optinc ([a-z]+)", page.read_text(encoding="utf-8"))}
    groups = {group.typer_instance.info.name for group in app.registered_groups}
    assert advised <= {command.name or command.callback.__name__ for command in app.registered_commands} | groups
    assert {"calibrate", "check"} <= advised


@pytest.mark.parametrize(
    "arguments",
    [["demo", "--ports", "1"], ["calibrate"], ["check", "--simulate", "x"], ["fly"], ["demo", "--seed", "-1"]],
)
def test_wrong_usage_exits_2_with_nothing_on_stdout(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage" in result.stderr


def test_init_writes_a_bench_that_check_accepts_and_never_overwrites(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = run("check", folder)
    assert result.exit_code == 0
    for name in check_bench(folder).heaters:
        assert name.element in result.stdout
    again = run("init", folder, "--ports", 4)
    assert again.exit_code == 1
    assert "is not overwritten" in again.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_check_as_json_is_json_only(folder):
    result = run("check", folder, "--json")
    content = json.loads(result.stdout)
    report = check_bench(folder)
    assert content["ports"] == report.ports == 2
    assert [row["element"] for row in content["heaters"]] == [row.element for row in report.heaters]
    assert content["heaters"][0]["max_voltage_v"] == report.heaters[0].max_voltage_v
    assert {row["name"] for row in content["instruments"]} == {row.name for row in report.instruments}


def test_check_shows_text_that_looks_like_markup_as_it_is(folder):
    station = folder / "station.yaml"
    station.write_text(station.read_text().replace("/dev/ttyUSB0", "/dev/[red]tty"))
    assert "/dev/[red]tty" in run("check", folder).stdout


@pytest.mark.parametrize(
    "arguments", [["check"], ["check", "--json"], ["calibrate", "--simulate"], ["verify", "--simulate"]]
)
def test_a_bad_bench_is_one_message_and_exit_1(folder, arguments):
    chip = folder / "chip.yaml"
    chip.write_text(chip.read_text().replace("averaging_time_s", "averaging_tme_s"))
    result = run(arguments[0], folder, *arguments[1:])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "averaging_tme_s" in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_lets_the_exception_through(tmp_path):
    result = run("--debug", "check", tmp_path / "nowhere")
    assert isinstance(result.exception, OptincError)


def test_verify_without_a_calibration_names_the_remedy(folder):
    result = run("verify", folder, "--simulate")
    assert result.exit_code == 1
    assert "optinc calibrate" in result.stderr


@pytest.mark.parametrize("command", ["calibrate", "verify"])
def test_real_hardware_is_not_opened_when_nobody_can_be_asked(folder, command, monkeypatch):
    monkeypatch.setattr(Bench, "open", lambda *_, **__: pytest.fail("the bench was opened"))
    result = run(command, folder, input="")
    assert result.exit_code == 2
    assert "--yes" in result.stderr


@pytest.mark.parametrize(("answer", "code", "message"), [("n\n", 1, "nothing was changed"), ("", 130, "interrupted")])
def test_without_a_yes_to_the_question_nothing_begins(folder, monkeypatch, answer, code, message):
    simulated = Bench.open
    monkeypatch.setattr(Bench, "open", lambda place, **_: simulated(place, simulate=True))
    monkeypatch.setattr("optinc_hw.cli._driving._require_answer", lambda *_: None)
    monkeypatch.setattr("calibration.calibrate", lambda *_, **__: pytest.fail("the calibration began"))
    result = run("calibrate", folder, input=answer)
    assert result.exit_code == code
    assert "Continue?" in result.stderr
    assert message in result.stderr


def test_an_unreachable_instrument_is_named(folder):
    station = folder / "station.yaml"
    text = station.read_text().replace("/dev/ttyUSB0", "socket://127.0.0.1:9")
    for host in range(20, 30):
        text = text.replace(f"192.168.1.{host}::5025", f"127.0.0.1::{host}").replace(f"192.168.1.{host}", "127.0.0.1")
    station.write_text(text)
    result = run("verify", folder, "--yes")
    assert result.exit_code == 1
    assert any(row.name in result.stderr for row in check_bench(folder).instruments)
    assert "Traceback" not in result.stderr


def test_calibrate_then_verify_on_simulated_instruments(folder, tmp_path):
    chip = (folder / "chip.yaml").read_text()
    calibrated = run("calibrate", folder, "--simulate", "--seed", 3, "--json", "--out", tmp_path / "run.nc")
    assert calibrated.exit_code == 0, calibrated.stderr
    content = json.loads(calibrated.stdout)
    assert content["data"] == str(tmp_path / "run.nc")
    assert (tmp_path / "run.nc").is_file()
    assert 0.5 < content["quality"]["residual_over_noise"] <= 3.0
    assert (folder / "chip.yaml").read_text() == chip  # a simulated chip's record is never given to the real bench
    assert "phase curves" in calibrated.stderr
    same = run("verify", folder, "--simulate", "--seed", 3, "--json")
    assert same.exit_code == 0, same.stderr
    assert json.loads(same.stdout)["good"] is True


def test_init_writes_a_bench_of_a_bare_mesh(tmp_path):
    options = ["--ports", 3, "--kind", "mesh", "--p-pi-w", 0.0012, "--resistance-ohm", 1540]
    assert run("init", tmp_path / "mesh", *options).exit_code == 0
    report = check_bench(tmp_path / "mesh")
    assert (report.receivers, len(report.inputs), len(report.heaters)) == ("power", 3, 6)
    assert {row.role for row in report.instruments} == {"heaters", "laser", "meter", "switch"}
    assert report.heaters[0].max_power_w == pytest.approx(0.0036)


def test_calibrate_passes_budget_and_resume_on(folder, monkeypatch, tmp_path):
    from test_bench_record import make_record

    asked = {}

    def pretend(bench, **options):
        asked.update(options)
        return make_record(ports=2)

    monkeypatch.setattr("calibration.calibrate", pretend)
    interrupted = tmp_path / "run.nc"
    interrupted.write_bytes(b"data")
    result = run("calibrate", folder, "--simulate", "--budget", 500, "--resume", interrupted, "--json")
    assert result.exit_code == 0, result.stderr
    assert (asked["budget"], asked["resume"], asked["seed"]) == (500, interrupted, 0)
    assert json.loads(result.stdout)["data"] == str(interrupted)
    asked.clear()
    shown = run("calibrate", folder, "--simulate")
    assert set(asked) == {"seed", "data_file", "progress"}
    assert "full calibration" in shown.stdout
    assert run("calibrate", folder, "--simulate", "--resume", tmp_path / "nowhere.nc").exit_code == 2


def test_history_lists_the_calibrations_of_a_bench(folder):
    from test_bench_record import make_record

    assert json.loads(run("history", folder, "--json").stdout) == {"records": []}
    with Bench.open(folder, simulate=True, seed=7) as bench:
        bench.save_record(make_record(ports=2))
    (folder / "calibration_old.json").write_text("{}")
    result = run("history", folder, "--json")
    assert result.exit_code == 0
    broken, row = json.loads(result.stdout)["records"]
    assert (row["file"], row["created_utc"]) == ("calibration_simulated_7.json", "2026-01-01T00:00:00+00:00")
    assert (row["kind"], row["in_force"], row["residual_over_noise"]) == ("full", False, 1.5)
    assert "has no content_hash" in broken["problem"]
    assert "calibration_old.json" in result.stderr
    assert "calibration_simulated_7.json" in run("history", folder).stdout


def summary(**changes):
    values = {
        "version": "1", "ports": 8, "seed": 0, "readings": 5000, "bench_readings": 9000,
        "twin_residual_over_noise": 2.0, "noise_relative": 1e-3, "noise_floor_w": 5e-9, "bench_elements": 2000,
        "bench_symbol_error_rate": 0.0, "uncalibrated_elements": 400, "uncalibrated_symbol_error_rate": 0.7,
        "twin_symbol_error_rate": 0.0, "twin_inputs": 28561, "twin_sample_symbol_error_rate": 0.0,
        "accuracy_optical": 0.97, "accuracy_float": 0.975, "accuracy_optical_runs": (0.97,),
        "accuracy_float_runs": (0.975,), "seconds": {"total": 90.0},
    }  # fmt: skip
    return DemoSummary(**values | changes)


@pytest.mark.parametrize(
    ("found", "code"), [(summary(), 0), (summary(bench_symbol_error_rate=0.01), 1)], ids=["met", "not met"]
)
def test_demo_passes_its_options_on_and_exits_by_its_criteria(found, code, monkeypatch, tmp_path):
    asked = {}

    def pretend(settings, out, progress):
        progress("calibration: twin fit", 1, 2)
        asked.update(settings=settings, out=out)
        return found

    monkeypatch.setattr("optinc_hw.demo.run_demo", pretend)
    options = ["--ports", 4, "--seed", 5, "--elements", 2100, "--train-seeds", 2, "--out", tmp_path / "report"]
    result = run("demo", *options, "--json")
    assert result.exit_code == code
    assert json.loads(result.stdout) == json.loads(json.dumps(found.to_json_dict()))
    assert "calibration: twin fit" in result.stderr
    assert ("not met: bench_symbol_error_rate is 0.01, wanted: below 0.001" in result.stderr) == (code == 1)
    assert asked["out"] == tmp_path / "report"
    settings = asked["settings"]
    assert (settings.ports, settings.seed, settings.elements, settings.train_seeds) == (4, 5, 2100, 2)
    tables = run("demo")
    assert tables.exit_code == code
    for text in ("bench, not calibrated", "0.7", "97.00 %", "bench_symbol_error_rate"):
        assert text in tables.stdout


def test_demo_does_not_touch_a_foreign_folder(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    result = run("demo", "--out", tmp_path)
    assert result.exit_code == 1
    assert "holds files that no demo wrote" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_doctor_lists_packages_ports_and_backends():
    result = run("doctor", "--json")
    assert result.exit_code == 0, result.stderr
    content = json.loads(result.stdout)
    assert content["version"] == optinc_hw.__version__
    versions = {package["name"]: package["version"] for package in content["packages"]}
    assert versions["torch"]
    assert "py" in {backend["name"] for backend in content["visa_backends"] if backend["usable"]}
    assert "optinc-hw[demo]" in run("doctor").stdout


def test_doctor_and_constraints_know_every_dependency():
    root = Path(optinc_hw.__file__).parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    names = {re.match(r"[\w.-]+", line)[0] for line in project["dependencies"]}
    content = json.loads(run("doctor", "--json").stdout)
    assert {package["name"] for package in content["packages"] if package["needed_for"] is None} == names
    pinned = {line.split("==")[0] for line in (root / "constraints.txt").read_text().splitlines() if "==" in line}
    extras = {
        re.match(r"[\w.-]+", line)[0]
        for key in ("clients", "demo", "test")
        for line in project["optional-dependencies"][key]
    }
    assert (names | extras) - {"optinc-hw"} <= pinned


def test_doctor_fails_when_a_package_is_missing(monkeypatch):
    monkeypatch.setattr("optinc_hw._doctor._version", lambda name: None if name == "pyserial" else "1.0")
    result = run("doctor", "--json")
    assert result.exit_code == 1
    assert "pyserial is missing" in result.stderr
    assert json.loads(result.stdout)["serial_ports"] == []
