"""Leaving an open bench: by its end, an exception, a signal, a dead link, or the end of the interpreter."""

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import bench_fakes
import pytest
from bench_fakes import SETTINGS, calls, drive, write_fake_folder

from optinc_hw.bench import Bench
from optinc_hw.errors import (
    InstrumentError,
    LinkError,
)

HEATERS = 89
TERMINATION = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@pytest.fixture
def folder(tmp_path):
    bench_fakes.reset()
    return write_fake_folder(tmp_path / "bench")


def session(folder, action):
    """One whole session that drives the bench, then does ``action``."""
    with Bench.open(folder) as bench:
        drive(bench)
        action()


def raising(error):
    def action():
        raise error

    return action


def test_leaving_makes_everything_safe_once(folder):
    with Bench.open(folder) as bench:
        drive(bench)
    assert [e[0] for e in calls(what="make_safe")] == ["heaters_0", "heaters_1", "laser"]
    bench.close()
    assert len(calls(what="make_safe")) == 3


@pytest.mark.parametrize("error", [ValueError("user code"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_makes_safe_and_passes_through(folder, error):
    with pytest.raises(type(error)):
        session(folder, raising(error))
    assert len(calls(what="make_safe")) == 3


def test_one_dead_link_does_not_keep_the_others_from_their_safe_state(folder):
    with pytest.raises(InstrumentError, match="heaters_0: link is dead") as caught:
        session(folder, lambda: SETTINGS.update(dead=("heaters_0",)))
    assert "1 instrument(s) may not be in the safe state" in str(caught.value)
    assert [e[0] for e in calls(what="make_safe")] == ["heaters_1", "laser"]
    assert len(calls(what="close")) == 5


def test_a_dead_link_does_not_hide_the_users_exception(folder):
    def action():
        SETTINGS["dead"] = ("laser",)
        raise ValueError("user code")

    with pytest.raises(ValueError, match="user code") as caught:
        session(folder, action)
    assert any("laser: link is dead" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("number", TERMINATION)
def test_a_termination_signal_makes_safe_and_the_former_handler_returns(folder, number):
    former = signal.getsignal(number)
    with pytest.raises(SystemExit) as caught:
        session(folder, lambda: signal.raise_signal(number))
    assert caught.value.code == 128 + number
    assert len(calls(what="make_safe")) == 3
    assert signal.getsignal(number) == former


@pytest.mark.parametrize("number", TERMINATION)
def test_a_signal_that_is_ignored_stays_ignored(folder, number):
    """As SIGHUP under nohup: a calibration goes on when its terminal is closed."""
    former = signal.signal(number, signal.SIG_IGN)
    try:
        with Bench.open(folder) as bench:
            drive(bench)
            signal.raise_signal(number)
            assert calls(what="make_safe") == []
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, former)


def test_benches_closed_in_any_order_keep_sigterm_for_those_still_open(folder, tmp_path):
    former = signal.getsignal(signal.SIGTERM)
    other = write_fake_folder(tmp_path / "other")
    for name in ("station.yaml", "chip.yaml"):
        text = (other / name).read_text().replace("fake:laser", "fake:other_laser")
        for instrument in ("heaters_0", "heaters_1", "meter_plus_0", "meter_minus_0"):
            text = text.replace(instrument, f"other_{instrument}")
        (other / name).write_text(
            text.replace("  laser:\n", "  other_laser:\n").replace("instrument: laser", "instrument: other_laser")
        )
    first = Bench.open(folder)
    second = Bench.open(other)
    first.close()
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    second.close()
    seen = []
    signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))
    with Bench.open(folder) as third, Bench.open(other):
        third.close()
    signal.raise_signal(signal.SIGTERM)
    assert seen == [signal.SIGTERM]
    signal.signal(signal.SIGTERM, former)


def test_a_signal_just_before_making_safe_leaves_the_bench_open_for_another_try(folder, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    bench = Bench.open(folder)
    drive(bench)
    with monkeypatch.context() as patched:
        patched.setattr("optinc_hw.bench._leaving.deferred_signals", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.close()
    assert calls(what="make_safe") == []
    bench.close()
    assert len(calls(what="make_safe")) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, *TERMINATION])
def test_a_signal_while_making_safe_waits_until_all_are_safe(folder, monkeypatch, number):
    original = bench_fakes.FakeHeaters.make_safe

    def interrupted(self):
        signal.raise_signal(number)
        original(self)

    monkeypatch.setattr(bench_fakes.FakeHeaters, "make_safe", interrupted)
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        session(folder, lambda: None)
    assert [e[0] for e in calls(what="make_safe")] == ["heaters_0", "heaters_1", "laser"]
    assert len(calls(what="close")) == 5


def test_a_bench_opened_in_another_thread_installs_no_handler(folder):
    former = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        with Bench.open(folder) as bench:
            seen.append(signal.getsignal(signal.SIGTERM))
            drive(bench)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [former]
    assert len(calls(what="make_safe")) == 3


def run_script(folder, body):
    script = f"""
        import sys
        sys.path[:0] = [{str(Path(bench_fakes.__file__).parent)!r}, {str(Path.cwd())!r}]
        import numpy as np, bench_fakes
        from optinc_hw.bench import Bench
        class Journal(list):
            def append(self, entry):
                print(entry[0], entry[1], flush=True)
        bench_fakes.JOURNAL = Journal()
        bench = Bench.open({str(folder)!r})
        bench.set_voltages(np.ones({HEATERS}))
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script) + textwrap.dedent(body)],
        stdout=subprocess.PIPE,  # errors go to the test's own stderr, which pytest shows when it fails
        text=True,
    )


def test_a_bench_in_use_is_refused_and_sigterm_from_outside_makes_it_safe(folder):
    process = run_script(folder, "import signal\nprint('ready', flush=True)\nsignal.pause()")
    for line in process.stdout:
        if line == "ready\n":
            break
    with pytest.raises(LinkError, match="in use by another process"):
        Bench.open(folder)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert "heaters_0 make_safe\nheaters_1 make_safe\n" in output
    assert process.returncode == 128 + signal.SIGTERM
    with Bench.open(folder):
        pass


def test_without_a_with_block_python_makes_safe_at_its_end_but_no_forked_child_does(folder):
    process = run_script(
        folder,
        """
        import os
        child = os.fork()
        if child == 0:
            bench.close()
            print("child left", flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print("parent leaves", flush=True)
        """,
    )
    output, _ = process.communicate(timeout=60)
    assert output.index("child left") < output.index("parent leaves") < output.index("heaters_0 make_safe")
    assert output.count("heaters_0 make_safe") == 1
