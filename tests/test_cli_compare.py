"""optinc compare: what it prints, writes and refuses."""

import json

import pytest
from typer.testing import CliRunner

from optinc_hw._tables import with_prefix
from optinc_hw.cli import app
from optinc_hw.interconnect.comparison import system_names
from optinc_hw.onn import SCENARIOS, CellChain, build_cell


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
    assert many["fastest"]["all"][0]["name"] == "optinc"
    assert many["best"] in {"optinc", "optinc-cascade", "switch"}


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
    ("bits", "nodes", "scenario"), [(8, 4, 1), (8, 6, 2), (8, 16, 3), (8, 100, 3), (4, 3, 1), (16, 64, 4), (32, 4, 4)]
)
def test_the_published_design_is_the_one_that_fits(bits, nodes, scenario):
    (found,) = content("--bits", bits, "--nodes", nodes, "--schedule", "ring")
    row = SCENARIOS[scenario - 1]
    expected = row.mzis(row.approximated[0]) + row.surrounding_mzis
    assert found["optical_network"]["mzis"] == expected
    assert found["optical_network"]["servers"] == row.servers


def test_a_chain_of_cells_takes_fewer_mzis():
    (found,) = content("--nodes", 16, "--design", "chain", "--schedule", "optinc")
    assert found["optical_network"]["mzis"] == CellChain(build_cell(16), 16, 16).mzis("svd")
    assert found["rows"][0]["optics"]["networks"] == 1


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


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.394e-3, "2.39 ms"), (999.6, "1.00 kB"), (51.1e6, "51.1 MB"), (1e11, "100 GB"), (3e-10, "0.30 nB"), (0, "0 B")],
)
def test_numbers_have_three_digits_and_a_prefix(value, text):
    assert with_prefix(value, text[-1]) == text
