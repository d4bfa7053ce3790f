"""A process that runs calibrations in children of its own, which others kill; it loads everything once.

Each line of its input is a JSON object: ``what`` names one of `RUNS`, ``kill_at`` the number of calls and returns in
our modules after which the child ends itself by SIGKILL, ``cpu_s`` the CPU time after which the kernel ends it without
asking it (each null for never), the rest are the arguments.  It answers each line with the child's process id when it
begins and with its exit status when it is gone.
"""

import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from journaled_runs import CountingBench, header_of

from calibration import calibrate
from calibration._journal_probe import JournaledProbe
from calibration._run_file import RunFile, kept_on_failure
from calibration._run_opening import open_journal
from optinc_hw._files import write_text
from optinc_hw.photonics import ChipLayout, TwinParameters

OURS = tuple(
    str(Path(sys.modules[name].__file__))
    for name in (
        "calibration._calibrate", "calibration._electrical", "calibration._homodyne_run", "calibration._optical",
        "calibration._outcome", "calibration._session",
        "calibration._journal", "calibration._journal_format", "calibration._journal_probe",
        "calibration._journal_results", "calibration._journal_tables", "calibration._journal_writer",
        "calibration._run_file", "calibration._run_opening", "calibration._twin_fit",
        "optinc_hw._files", "optinc_hw._netcdf", "optinc_hw.bench.record", __name__,
    )
)  # fmt: skip


class Countdown:
    """Ends the process at the n-th call or return of our functions, or of the C functions that they call."""

    def __init__(self, events):
        self.left = self.events = events

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename in OURS:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _file_of(place):
    """Arguments that begin a run in a folder, or go on with it."""
    data_file = place / "run.nc"
    started = data_file.exists() or data_file.with_name("run.nc.journal").exists()
    return {"data_file": data_file, "resume": data_file if started else None}


def calibrate_bench(place, seed, ports, kind="homodyne", **counts):
    """Calibrate a chip on a `CountingBench`."""
    bench = CountingBench(place / "bench", ports, seed, kind)
    chosen = _file_of(place)
    if chosen["resume"] is not None:
        chosen["data_file"] = None
    record = calibrate(bench, seed=seed, **counts, **chosen)
    record.save(place / "record.json")
    return bench.readings


class CountingProbe:
    """A bare mesh whose readings depend on nothing but what is asked."""

    layout = ChipLayout(3, inputs="ports", receivers="power")
    max_power_w, max_total_power_w, nominal_efficiency = np.full(6, 0.1), 1.0, np.full(6, 157.0)
    readings = 0

    def measure(self, stage, power_w, lit):
        self.readings += len(power_w)
        digest = hashlib.sha256(stage.encode() + power_w.tobytes() + lit.tobytes()).digest()
        rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
        return np.cos(157.0 * power_w[:, :3]) ** 2 + 1e-3 * rng.standard_normal((len(power_w), 3))


def search(place, seed):
    """Search settings where each depends on all readings before, with a fit and a result."""
    probe, rng = CountingProbe(), np.random.default_rng(seed)
    header = header_of(probe.layout, seed=seed, created_utc=datetime.now(UTC).isoformat())
    path, journal = open_journal(header=header, **_file_of(place))
    with journal:
        run = RunFile(path, journal)
        with kept_on_failure(run):
            chip, power = JournaledProbe(probe, journal), np.full(6, 0.02)
            for stage in ("lines", "columns", "random"):
                for _ in range(8):
                    trial = np.abs(power + 0.01 * rng.standard_normal((4, 6)))
                    found = chip.measure(stage, trial, rng.integers(0, 3, 4))
                    power = 0.5 * power + 0.5 * trial[np.argmax(found.sum(axis=1))]
                fit = {"power_w": power}
                power = journal.result(stage, fit, lambda start=power: {"power_w": np.sqrt(start**2)})["power_w"]
        twin = TwinParameters.nominal(3, input_amplitude=1.0, lo_amplitude=0.0, inputs="ports", receivers="power")
        run.finish(twin, {"readings": journal.readings, "power_w": float(power[0])})
    write_text(place / "record.json", json.dumps(power.tolist()))
    return probe.readings


RUNS = {"calibrate": calibrate_bench, "search": search}


def child(what, folder, kill_at, cpu_s, **chosen):
    """Run one of `RUNS`; how many readings it took, events it had and CPU time it used is written beside."""
    countdown, place = Countdown(kill_at or -1), Path(folder)
    start = time.process_time()
    if cpu_s is not None:
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)  # ends the process as SIGKILL does, wherever it is
        signal.setitimer(signal.ITIMER_VIRTUAL, max(cpu_s, 1e-4))
    if kill_at is not None or what == "search":
        sys.setprofile(countdown)
    readings = RUNS[what](place, **chosen)
    sys.setprofile(None)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    events = countdown.events - countdown.left
    (place / "numbers").write_text(f"{readings} {events} {time.process_time() - start}")


def main():
    with tempfile.TemporaryDirectory() as folder:  # load what is only loaded on use
        (Path(folder) / "bench").mkdir()
        search(Path(folder), 0)
        calibrate_bench(Path(folder) / "bench", ports=2, settings=20, held_out=1, seed=0)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            try:
                child(**json.loads(line))
            except BaseException as error:  # noqa: BLE001 - whatever it is, the test has to see it
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                os._exit(1)
            os._exit(0)
        sys.stdout.write(f"{process}\n")
        sys.stdout.flush()
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
