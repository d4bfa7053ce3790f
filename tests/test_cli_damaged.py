"""The optinc command with a damaged bare mesh: discovered, its chip.yaml corrected, calibrated around the damage."""

import json

import pytest
from typer.testing import CliRunner

from optinc_hw.bench import Bench, read_description
from optinc_hw.cli import app

SWAPPED = ("mzi_1_1_theta", "mzi_2_2_phi")
DAMAGE = "dead_heaters: [mzi_2_0_theta], stuck_heaters: {mzi_3_1_phi: 1.2}, dead_detectors: [rx_3]"
CHIP = "version: 1\npreset: method_a\nports: 4\nseed: 5\ntruth: {%s}\n"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def discovered(tmp_path_factory):
    """A bench folder, and what `optinc discover` proposed and printed."""
    folder = tmp_path_factory.mktemp("lab") / "mesh"
    assert run("init", folder, "--kind", "mesh", "--ports", 4).exit_code == 0
    one, other = SWAPPED
    wires = f"wires: {{{one}: {other}, {other}: {one}}}"
    (folder / "hidden_chip.yaml").write_text(CHIP % f"{wires}, {DAMAGE}")
    proposed = folder.parent / "proposed.yaml"
    result = run("discover", folder, "--simulate", "--out", proposed, "--json")
    assert result.exit_code == 0, result.stderr
    return folder, proposed, json.loads(result.stdout)


def test_discovery_finds_the_damage(discovered):
    _, _, content = discovered
    found = {row["name"]: row for row in content["heaters"]}
    one, other = SWAPPED
    assert found[one]["driven_by"] == other
    assert found[other]["driven_by"] == one
    assert found["mzi_2_0_theta"]["state"] == "open"
    assert found["mzi_3_1_phi"]["state"] == "no effect"
    assert [row["name"] for row in content["detectors"] if row["state"] == "dead"] == ["rx_3"]
    assert sum(row["state"] == "ok" for row in content["heaters"]) == 8


def test_what_is_left_is_calibrated_and_programmed(discovered):
    folder, proposed, _ = discovered
    before = read_description(folder).chip.heaters.entries
    (folder / "chip.yaml").write_text(proposed.read_text())
    after = read_description(folder).chip.heaters.entries
    one, other = SWAPPED
    assert (after[one], after[other]) == (before[other], before[one])
    # Simulated wires begin where chip.yaml says: at the new channels they end where they should.
    (folder / "hidden_chip.yaml").write_text(CHIP % DAMAGE)
    result = run("calibrate", folder, "--simulate", "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)["report"]
    assert report["dark_detectors"] == ["rx_3"]
    assert report["abilities"][0] == "10 of 12 phases can be moved"
    assert "mzi_2_0 has a fixed split between modes 0 and 1" in report["abilities"]
    assert "the output of rx_3 is not seen; the others' readings tell the rest" in report["abilities"]
    with Bench.open(folder, simulate=True) as bench:
        record = bench.require_record()
    assert set(record.stuck) == {"mzi_2_0_theta", "mzi_3_1_phi"}
    assert record.quality.held_out_tvd < 0.005
    checked = json.loads(run("verify", folder, "--simulate", "--targets", 2, "--json").stdout)
    assert checked["tvd"] < 0.005
    targets = checked["programming"]["targets"]
    assert len(targets) == 4
    assert max(one["tvd_from_twin"] for one in targets) < 0.005
    assert {limit["mzi"] for limit in targets[0]["limiting"][:2]} == {"mzi_2_0", "mzi_3_1"}
