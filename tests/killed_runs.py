"""Kills calibrations at chosen moments and takes them up again; for the tests and for benchmarks/kills.py."""

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import xarray as xr

from calibration import CalibrationRecord, RunData, read_run

KILLED = (-signal.SIGKILL, -signal.SIGVTALRM)
CALIBRATE = {"what": "calibrate", "ports": 2, "settings": 30, "held_out": 10, "seed": 1}
MESH = {"what": "calibrate", "kind": "mesh", "ports": 4, "budget": 220, "held_out": 10, "seed": 1}
SEARCH = {"what": "search", "seed": 5}


@contextmanager
def calibrations():
    """Start the process that runs calibrations; yields a `Children`."""
    script = Path(__file__).with_name("kill_child.py")
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Children(process)
        finally:
            process.stdin.close()


@dataclass(frozen=True)
class Children:
    """Runs calibrations in children of another process."""

    process: subprocess.Popen

    def begin(self, folder, task, kill_at=None, cpu_s=None):
        """Start a run, or go on with it; returns the child's process id."""
        folder.mkdir(exist_ok=True)
        line = json.dumps({**task, "folder": str(folder), "kill_at": kill_at, "cpu_s": cpu_s})
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return int(self._answer())

    def end(self):
        """Wait until the child is gone; returns its exit status."""
        return int(self._answer())

    def _answer(self):
        line = self.process.stdout.readline()
        assert line, "the process that runs calibrations ended; see its messages"
        return line

    def run(self, folder, task, kill_at=None, cpu_s=None, wall_s=None):
        """Run until it is over or killed; returns its exit status.

        ``wall_s`` is the time in s after which SIGKILL is sent from here, wherever the child is: in a system call too.
        """
        child = self.begin(folder, task, kill_at, cpu_s)
        if wall_s is not None and not select.select([self.process.stdout], [], [], wall_s)[0]:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(child, signal.SIGKILL)
        return self.end()


@dataclass(frozen=True)
class Outcome:
    """What a finished run left behind, without the times at which it happened.

    Readings, events and CPU time are those of its last process.
    """

    record: object
    run: RunData
    readings: int
    events: int
    cpu_s: float

    @classmethod
    def of(cls, folder):
        """Read it from the folder of the run."""
        record = json.loads((folder / "record.json").read_text())
        if isinstance(record, dict):
            record = CalibrationRecord.load(folder / "record.json").model_dump(mode="json")
            assert record["provenance"].pop("created_utc")
            assert record["provenance"].pop("data_sha256")
        readings, events, cpu_s = (folder / "numbers").read_text().split()
        return cls(record, read_run(folder / "run.nc"), int(readings), int(events), float(cpu_s))

    def differences(self, other):
        """Name what is not the same, bit for bit."""
        found = [] if self.record == other.record else ["record"]
        mine, others = self.run.steps, other.run.steps
        if len(mine) != len(others):
            return [*found, f"{len(mine)} and {len(others)} sweeps"]
        for index, (one, two) in enumerate(zip(mine, others, strict=True)):
            for role in ("asked", "answered"):
                pair = getattr(one, role), getattr(two, role)
                same = [{name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()} for arrays in pair]
                if one.stage != two.stage or same[0] != same[1]:
                    found.append(f"sweep {index} of {one.stage}, {role}")
        return found


def unreadable(folder):
    """Open every file that a kill left behind; returns (those that cannot be read, sweeps in safety)."""
    bad, sweeps = [], 0
    for path in sorted(folder.iterdir()):
        try:
            if path.name == "run.nc.journal":
                sweeps = len(read_run(path).steps)
            elif path.name == "run.nc":
                xr.load_dataset(path, engine="h5netcdf").close()
            elif path.name == "record.json":
                json.loads(path.read_text())
        except Exception as error:  # noqa: BLE001 - whatever it is, the file could not be read
            bad.append(f"{path.name}: {error}")
    return bad, sweeps
