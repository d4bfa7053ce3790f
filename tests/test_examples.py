"""Examples run as scripts; the code of README and pages runs as it is written.

In a page, blocks that open with ``python`` or ``console`` are run in the order of the page: Python in one namespace a
page, console lines that begin with ``$ optinc`` as that command.  Blocks that open with ``py``, ``sh`` or anything else
are only shown.  All pages run in one process and one empty folder, so later pages find what the tutorial leaves there.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
HOW_TO = sorted(path.name for path in (ROOT / "docs" / "howto").glob("*.md"))
LINUX_ONLY = ("other_clients.md",)
"""Pages with pseudo-terminals."""
TORCHRUN = "train_with_ddp.md"
"""A page whose script is for several processes."""


def run_python(folder, *arguments, **more):
    """Run Python in ``folder`` and return what it printed; its errors are shown if it fails."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1", **more}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def run_example(name, folder, *arguments):
    return run_python(folder, "-W", "error", str(EXAMPLES / name), *map(str, arguments))


def run_ranks(ranks, script, folder, *arguments):
    """Run a script as torchrun does, on one machine."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    loopback = "lo" if sys.platform == "linux" else "lo0"
    return run_python(folder, *launcher, str(script), *map(str, arguments), GLOO_SOCKET_IFNAME=loopback)


def blocks(text):
    """Yield (language, first line number, code) of the fenced blocks of a page."""
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        yield found[1], text.count("\n", 0, found.start(2)) + 1, found[2]


def as_script(text):
    """Turn a page into a Python script with the same line numbers."""
    lines = [""] * (text.count("\n") + 1)
    for language, first, code in blocks(text):
        for number, line in enumerate(code.splitlines(), first - 1):
            if language == "python":
                lines[number] = line
            elif language == "console" and line.startswith("$ optinc "):
                arguments = shlex.split(line.removeprefix("$ optinc "))
                lines[number] = f"from optinc_hw.cli import app; assert not app({arguments}, standalone_mode=False)"
    return "\n".join(lines) + "\n"


@pytest.fixture
def pages(tmp_path):
    """Make scripts of the given pages, and a folder to run them in."""

    def make(*names):
        scripts = []
        for name in names:
            script = tmp_path / f"{name.replace('/', '_')}.py"
            script.write_text(as_script((ROOT / name).read_text(encoding="utf-8")), encoding="utf-8")
            scripts.append(str(script))
        place = tmp_path / "work"
        place.mkdir()
        return place, scripts

    return make


def test_blocks_keep_their_lines():
    text = "\n```python\na = 1\nb = a\n```\n\n```py\nnever\n```\n\n```console\n$ optinc init 'my bench'\nout\n```\n"
    script = as_script(text).splitlines()
    assert script[2:4] == ["a = 1", "b = a"]
    assert script[11] == "from optinc_hw.cli import app; assert not app(['init', 'my bench'], standalone_mode=False)"
    assert [line for k, line in enumerate(script) if k not in (2, 3, 11) and line] == []


def test_calibrated_chip_averages_gradients(tmp_path):
    shown = run_example("01_first_calibration.py", tmp_path, tmp_path / "bench")
    assert "good: True" in shown
    shown = run_example("03_aggregate_gradients.py", tmp_path, tmp_path / "bench" / "calibration_simulated_1.json")
    assert "twin: 0 of 28561 inputs answered wrongly" in shown
    optical, floating = (float(loss) for loss in re.findall(r"averaging: loss \S+ -> (\S+)", shown))
    assert optical == pytest.approx(floating, abs=0.05)


def test_qcodes_session(tmp_path):
    shown = run_example("02_qcodes_session.py", tmp_path, tmp_path / "session")
    assert "run 1: 21 points x 8 photodiodes" in shown
    assert "good fit: True" in shown
    assert (tmp_path / "session" / "optinc.db").is_file()


def test_custom_driver(tmp_path):
    shown = run_example("04_custom_driver.py", tmp_path, tmp_path / "bench")
    assert "heaters_0: lab_heaters.LabHeaters, heaters, 11 channels in use" in shown
    assert "refused: heater in_0_theta" in shown
    assert "after the session: at most 0.0000 V" in shown


def test_the_retraining_example_mends_a_cell(tmp_path):
    shown = run_example("05_retrain_through_the_chip.py", tmp_path)
    before, after = (float(margin) for margin in re.findall(r"margin (-?\d\.\d+)", shown))
    assert "after:  0 of 104 symbols wrong" in shown
    assert after > before + 0.1


def test_what_a_model_of_ones_own_gains(tmp_path):
    shown = run_example("07_is_it_worth_it.py", tmp_path, 16, 25)
    assert "2,184,074 parameters" in shown  # 1792 + 73 856 + 2049 x 1024 + 1025 x 10 by hand
    gains = [float(gain) for gain in re.findall(r"gains +(\S+) %", shown)]
    assert len(gains) == 5
    assert gains == sorted(gains, reverse=True)
    assert "There is little to gain" in shown


def test_pages(pages):
    left_out = (TORCHRUN, *(() if sys.platform == "linux" else LINUX_ONLY))
    how_to = [f"docs/howto/{name}" for name in HOW_TO if name not in left_out]
    folder, scripts = pages("README.md", "docs/tutorial.md", *how_to)
    run_python(folder, "-c", "import runpy, sys; [runpy.run_path(page) for page in sys.argv[1:]]", *scripts)


def test_the_page_on_ddp_runs_on_two_ranks(pages):
    """The page itself asserts that both end with equal bits."""
    folder, (script,) = pages(f"docs/howto/{TORCHRUN}")
    shown = run_ranks(2, script, folder)
    assert "% of a ring all-reduce of float32" in shown
    assert json.loads((folder / "costs.json").read_text())["elements"] > 0
    assert sorted(path.name for path in folder.glob("*.pt")) == ["step_20_rank_0.pt", "step_20_rank_1.pt"]


def test_tests_that_the_page_on_ddp_names_exist():
    page = (ROOT / "docs" / "howto" / TORCHRUN).read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    files = [ROOT / "tests" / name for name in set(re.findall(r"`tests/(test_\w+\.py)`", page))]
    there = {name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)}
    assert len(named) > 10
    assert named <= there, named - there


def test_digits_train_on_two_ranks_and_on_one(tmp_path):
    script, short = EXAMPLES / "06_train_digits.py", ("--steps", 3)
    shown = run_ranks(2, script, tmp_path, *short, "--bits", 16, "--averaging", "exact", "--errors", "3-6")
    assert "digits, MLP: validation loss 2." in shown
    assert "equal parameters on all ranks: yes" in shown
    assert "14,430 gradient elements" in shown  # 3 steps of 64 x 64 + 64 + 64 x 10 + 10
    shown = run_example("06_train_digits.py", tmp_path, *short, "--model", "resnet")
    assert "one process: nothing to average" in shown
    assert "digits, ResNet: validation loss" in shown


def test_a_language_model_trains_on_a_folder_of_text_through_a_twin(tmp_path):
    text, costs = tmp_path / "words", tmp_path / "costs.json"
    text.mkdir()
    (text / "a.txt").write_text("The chip averages the gradients of the training servers. " * 400, encoding="utf-8")
    options = ("--text", text, "--averaging", "twin", "--steps", 2, "--costs", costs)
    shown = run_ranks(2, EXAMPLES / "06_train_language_model.py", tmp_path, *options)
    assert "words, language model: validation loss" in shown
    assert "equal parameters on all ranks: yes" in shown
    assert json.loads(costs.read_text())["ranks"] == 2
    shown = run_example("06_train_language_model.py", tmp_path, "--steps", 1)
    assert "documentation, language model: validation loss" in shown
