"""optinc compare: what it prints, writes and refuses."""

import json

import pytest
from typer.testing import CliRunner

from optinc_hw._tables import with_prefix
from optinc_hw.cli import app
from optinc_hw.interconnect.comparison import system_names
from optinc_hw.onn import SCENARIOS


def run(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def content(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["comparisons"]


def test_the_table_names_every_schedule_and_ends_with_a_verdict():
    result = run("--model", "vgg16", "--nodes", 64, "--batch", 8)
    assert result.exit_code == 0, result.stderr
    for name in system_names():
        assert name in result.stdout
    assert "vgg16, 64 servers, 8 images a server: 277 MB of gradients" in result.stdout
    assert "computing waits for the ring" in result.stdout
    assert "assumptions" in result.stderr


def test_json_has_a_comparison_for_each_number_of_servers():
    four, many = content("--model", "gpt2", "--nodes", 4, "--nodes", 4096, "--batch", 2048, "--bits", 8)
    assert (four["nodes"], many["nodes"]) == (4, 4096)
    assert [row["schedule"] for row in many["rows"]] == list(system_names())
    assert four["training"]["payload_bytes"] == 124_439_808
    for row in many["rows"]:
        assert row["step_s"] == pytest.approx(row["compute_s"] + row["waiting_s"])
    assert many["rows"][0]["speed_up"] == 1.0
    flat, cascade = many["rows"][-2:]
    assert flat["all_reduce_J"] is None
    assert cascade["optics"]["networks"] == (256 + 16 + 1) * 1  # of 16 servers, 4 lanes of 100 Gb/s each
    assert (flat["known"], cascade["known"], four["rows"][-1]["known"]) == (False, True, True)
    assert four["rows"][-1]["schedule"] == "optinc"
    assert four["rows"][-1]["all_reduce_J"] > 0
    assert "optinc" not in {one["name"] for ranges in many["fastest"].values() for one in ranges}
    assert many["best"] in {"optinc-cascade", "switch"}


def test_a_network_that_nobody_knows_is_marked_and_not_chosen():
    """The largest published network of 16 bits has 4 inputs."""
    result = run("--nodes", 4096, "--schedule", "ring", "--schedule", "switch", "--schedule", "optinc")
    text = " ".join(result.stdout.split())
    assert "optinc │ OptINC, ideal" in text
    assert "ideal: no optical network of more than 4 inputs of 16 bits is known" in text
    assert "no energy (–)" in text
    assert "switch shortens the step by" in text
    assert "optinc shortens" not in text
    assert "ideal" not in run("--nodes", 4, "--schedule", "ring", "--schedule", "optinc").stdout


def test_wider_gradients_than_any_network_carries_have_no_optical_energy():
    arguments = ("--bits", 32, "--nodes", 4, "--schedule", "ring", "--schedule", "optinc")
    (found,) = content(*arguments)
    assert found["optical_network"] is None
    assert [row["known"] for row in found["rows"]] == [True, False]
    assert found["rows"][1]["all_reduce_J"] is None
    assert found["best"] == "ring"
    text = " ".join(run(*arguments).stdout.split())
    assert "none is known for 32 bits" in text
    assert "ideal: no optical network of 32 bits is known" in text
    chain = content(*arguments, "--design", "chain")[0]
    assert (chain["optical_network"]["bits"], chain["rows"][1]["known"]) == (32, True)
    refused = run("--bits", 64, "--design", "chain")
    assert (refused.exit_code, "from 1 to 32, got 64" in refused.stderr) == (1, True)


def test_what_happens_at_every_batch_is_said_in_words():
    arguments = ("--step-time", 1e-6, "--bandwidth", 0.001, "--schedule", "ring")
    result = run(*arguments)
    assert "always" in result.stdout
    assert "999" not in result.stdout
    assert content(*arguments)[0]["rows"][0]["batch_of_small_share"] is None


def test_the_published_figures_of_optinc():
    """Eight links of 800 Gb/s, no delays, no time of adding, 2 images: 25 % less."""
    (found,) = content(
        "--model", "resnet50-32", "--nodes", 4, "--batch", 2, "--bandwidth", 6400, "--message", 0,
        "--schedule", "wdm-ring", "--schedule", "optinc", "--reconfiguration", 0, "--adding", "inf",
    )  # fmt: skip
    ring, optinc = found["rows"]
    assert 100 * (1 - optinc["step_s"] / ring["step_s"]) == pytest.approx(25.3, abs=0.2)


def test_nothing_to_gain_is_said():
    (found,) = content("--nodes", 8, "--batch", 4096)
    assert found["verdict"].startswith("There is little to gain")


@pytest.mark.parametrize(
    ("bits", "nodes", "scenario"), [(8, 4, 1), (8, 6, 2), (8, 16, 3), (8, 100, 3), (4, 3, 1), (16, 64, 4)]
)
def test_the_published_design_is_the_one_that_fits(bits, nodes, scenario):
    (found,) = content("--bits", bits, "--nodes", nodes, "--schedule", "ring")
    row = SCENARIOS[scenario - 1]
    expected = row.mzis(row.approximated[0]) + row.surrounding_mzis
    assert found["optical_network"]["mzis"] == expected
    assert found["optical_network"]["servers"] == row.servers


def test_a_chain_of_cells_takes_fewer_mzis():
    (found,) = content("--nodes", 16, "--design", "chain", "--schedule", "optinc")
    # 9 cells; each 2 -> 16 in (16 x 17 + 2) / 2 MZIs and 16 -> 2 in (2 x 3 + 16 x 15) / 2.
    assert found["optical_network"]["mzis"] == 9 * (137 + 123) == 2340
    assert found["rows"][0]["optics"]["networks"] == 1
    published = content("--nodes", 4, "--schedule", "optinc")[0]["optical_network"]["mzis"]
    cells = content("--nodes", 4, "--design", "chain", "--schedule", "optinc")[0]["optical_network"]["mzis"]
    assert cells == 8 * (11 + 9)
    assert cells < published / 100


def test_modules_and_measured_steps(tmp_path, monkeypatch):
    (tmp_path / "lab_net.py").write_text(
        "import torch\n"
        "def bare(): return torch.nn.Linear(3, 2)\n"
        "def fed(): return torch.nn.Linear(3, 2), torch.zeros(4, 3)\n"
    )
    monkeypatch.chdir(tmp_path)
    (found,) = content("--module", "lab_net:fed", "--nodes", 2, "--schedule", "ring")
    assert found["training"]["parameters"] == 8
    (found,) = content("--module", "lab_net:bare", "--step-time", 12, "--nodes", 2, "--schedule", "ring")
    assert found["rows"][0]["compute_s"] == pytest.approx(0.012)
    (found,) = content("--model", "vgg16", "--step-time", 12, "--batch", 7, "--nodes", 2, "--schedule", "ring")
    assert found["rows"][0]["compute_s"] == pytest.approx(0.012)
    refused = run("--module", "lab_net:bare")
    assert refused.exit_code == 2
    assert "--step-time" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--model", "resnet"), 1, "no model 'resnet' is built in"),
        (("--schedule", "rings"), 1, "there is no schedule 'rings'"),
        (("--nodes", 1), 2, "Usage"),
        (("--model", "vgg16", "--module", "a:b"), 2, "not both"),
        (("--module", "nowhere:net"), 1, "no factory 'nowhere:net'"),
        (("--schedule", "optinc-cascade", "--nodes", 4), 1, "no schedule is left"),
        (("--schedule", "optinc-cascade", "--bits", 32), 1, "no optical network is known: nothing to cascade"),
        (("--model", ""), 1, "no model '' is built in"),
        (("--module", ""), 1, "no factory ''"),
        (("--bandwidth", "inf", "--nodes", 4), 1, "rate_bps of a network must be positive and finite"),
        (("--bandwidth", "1e300", "--nodes", 4), 1, "rate_bps of a network must be positive and finite"),
    ],
)
def test_mistakes_are_one_message(arguments, code, message):
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_pictures_are_written(tmp_path):
    folder = tmp_path / "pictures"
    result = run("--nodes", 8, "--nodes", 16, "--plot", folder, "--schedule", "ring", "--schedule", "optinc")
    assert result.exit_code == 0, result.stderr
    expected = {"fastest.png", *(f"{name}_{n}.png" for name in ("times", "shares", "energy") for n in (8, 16))}
    assert {path.name for path in folder.iterdir()} == expected
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())


def test_pictures_of_one_schedule_show_what_there_is(tmp_path):
    result = run("--schedule", "optinc-cascade", "--nodes", 64, "--plot", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "fastest.png").is_file()
    ideal = tmp_path / "ideal"
    result = run("--schedule", "optinc", "--nodes", 64, "--bits", 32, "--plot", ideal)
    assert result.exit_code == 0, result.stderr
    assert {path.name for path in ideal.iterdir()} == {"times_64.png", "shares_64.png"}
    assert "no picture of energies: that of optinc is not known for 64 servers" in result.stderr
    assert "no picture of the fastest" in result.stderr


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_computed(tmp_path):
    (tmp_path / "afile").write_text("")
    result = run("--plot", tmp_path / "afile" / "sub", "--schedule", "ring")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "cannot be made" in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_a_picture_that_cannot_be_written_is_one_message(tmp_path):
    (tmp_path / "times_4.png").mkdir()
    result = run("--plot", tmp_path, "--schedule", "ring", "--nodes", 4)
    assert result.exit_code == 1
    assert "times_4.png cannot be written" in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_reach_counts_segments():
    text = " ".join(run("--help").stdout.split())
    assert "SEGMENTS" in text
    assert "segments that a wavelength passes" in run("--schedule", "ring").stdout


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.394e-3, "2.39 ms"), (999.6, "1.00 kB"), (51.1e6, "51.1 MB"), (1e11, "100 GB"), (3e-10, "0.30 nB"), (0, "0 B")],
)
def test_numbers_have_three_digits_and_a_prefix(value, text):
    assert with_prefix(value, text[-1]) == text
