"""Settings for all tests: one thread for numpy and torch, which on small matrices and busy cores is far faster."""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import signal  # noqa: E402 - the limits must be set before anything loads numpy
import sys  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402

import hypothesis  # noqa: E402
import pytest  # noqa: E402

# Cores are shared with other work: how long an example takes says nothing about the code.
hypothesis.settings.register_profile("project", deadline=None)
hypothesis.settings.load_profile("project")

# A shell starts its background jobs with SIGINT ignored, nohup ignores SIGHUP, and what is ignored stays ignored in
# their children; the tests send both to themselves and to the commands that they start.
if threading.current_thread() is threading.main_thread():
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser):
    parser.addoption(
        "--bench",
        metavar="FOLDER",
        help="bench folder whose instruments test_any_bench.py drives; its heaters and laser are raised. Default: a "
        "simulated bench",
    )


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_of_its_own(tmp_path_factory):
    """Benches lock addresses by files in the folder for temporary files; test runs side by side must not meet there."""
    with pytest.MonkeyPatch.context() as patched:
        place = str(tmp_path_factory.mktemp("temporary"))
        patched.setenv("TMPDIR", place)
        patched.setattr(tempfile, "tempdir", place)
        yield


_SERVER_THREADS = (" listener", " client", " pty")


@pytest.fixture(autouse=True)
def _nothing_stays_open():
    """Close the instruments that a test left open; fail if it is still serving one, or holds a VISA connection."""
    threads, instruments, connections = set(threading.enumerate()), set(_instruments()), _visa_connections()
    yield
    for name in set(_instruments()) - instruments:
        _instruments()[name].close()
    serving = [t for t in set(threading.enumerate()) - threads if t.name.endswith(_SERVER_THREADS)]
    for thread in serving:
        thread.join(timeout=10.0)
    assert not [thread.name for thread in serving if thread.is_alive()]
    # Left to the garbage collector, a connection is a warning in whatever test happens to run then.
    assert not _visa_connections() - connections


def _instruments():
    """Open QCoDeS instruments by name; tests that do not touch QCoDeS need not load it."""
    if "qcodes.instrument" not in sys.modules:
        return {}
    from qcodes.instrument import Instrument

    return dict(Instrument._all_instruments)


def _visa_connections():
    """Address and number of each open connection of pyvisa-py, whose libraries keep the sessions of closed ones too."""
    if "pyvisa_py" not in sys.modules:
        return set()
    from pyvisa.highlevel import VisaLibraryBase

    sessions = [s for library in VisaLibraryBase._registry.values() for s in getattr(library, "sessions", {}).values()]
    links = {(str(s.parsed), id(s)): getattr(s, "interface", None) for s in sessions if hasattr(s, "parsed")}
    return {key for key, link in links.items() if link is not None and getattr(link, "is_open", True)}


@pytest.fixture(scope="session")
def calibrated(tmp_path_factory):
    """The record, run file and progress of one calibration of a simulated bench of 4 ports."""
    from calibrated_benches import calibrate_once

    return calibrate_once(tmp_path_factory.mktemp("calibrated"))
