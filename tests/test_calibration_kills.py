"""A calibration that is killed again and again ends with the same result as one that never was."""

import sys

import numpy as np
import pytest
from killed_runs import CALIBRATE, KILLED, SEARCH, Outcome, calibrations, unreadable

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks and SIGKILL are of POSIX")
LAST_EVENTS = 3000
"""The last calls of a run: netCDF file, removal of the journal, record."""


@pytest.fixture(scope="module")
def children():
    with calibrations() as started:
        yield started


def undisturbed(children, folder, task):
    assert children.run(folder, task) == 0
    return Outcome.of(folder)


def end_in_spite_of(children, folder, task, kills):
    """Kill a run at each of these moments, which must leave whole files behind, and let it end; returns its outcome."""
    sweeps = 0
    for moment in kills:
        status = children.run(folder, task, **moment)
        bad, now = unreadable(folder)
        assert bad == []
        if status == 0:
            break
        assert status in KILLED
        assert now >= sweeps or not (folder / "run.nc.journal").exists()
        sweeps = max(now, sweeps)
    assert sweeps > 0
    assert children.run(folder, task) == 0
    assert not (folder / "run.nc.journal").exists()
    return Outcome.of(folder)


def test_a_run_killed_ten_times_ends_as_if_it_never_was(children, tmp_path):
    reference = undisturbed(children, tmp_path / "undisturbed", SEARCH)
    rng = np.random.default_rng(20)
    moments = [
        *rng.integers(1, reference.events - LAST_EVENTS, 5),
        *(reference.events - rng.integers(0, LAST_EVENTS, 5)),
    ]
    kills = [{"kill_at": int(moment)} for moment in sorted(moments)]
    outcome = end_in_spite_of(children, tmp_path / "killed", SEARCH, kills)
    assert outcome.differences(reference) == []
    assert outcome.readings < reference.readings


def test_a_finished_run_is_repeated_from_its_file_without_a_reading(children, tmp_path):
    reference = undisturbed(children, tmp_path, SEARCH)
    before = (tmp_path / "run.nc").read_bytes()
    (tmp_path / "record.json").unlink()  # as if killed between the two
    again = undisturbed(children, tmp_path, SEARCH)
    assert again.differences(reference) == []
    assert again.readings == 0
    assert (tmp_path / "run.nc").read_bytes() == before


def test_a_calibration_killed_at_any_moment_ends_with_the_same_record(children, tmp_path):
    reference = undisturbed(children, tmp_path / "undisturbed", CALIBRATE)
    kills = [{"cpu_s": 0.6 * reference.cpu_s}]
    outcome = end_in_spite_of(children, tmp_path / "killed", CALIBRATE, kills)
    assert outcome.differences(reference) == []
    assert outcome.readings < reference.readings
