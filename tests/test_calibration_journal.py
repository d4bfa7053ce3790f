"""The journal: what is whole is read as it was written, anything else is dropped or refused, never read as data."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from journaled_runs import header_of

from calibration import read_run
from calibration._journal import Journal
from calibration._journal_probe import JournaledProbe, ReplayProbe
from calibration._run_opening import open_journal
from optinc_hw.errors import CalibrationError, LinkError
from optinc_hw.photonics import ChipLayout

BARE = ChipLayout(3, inputs="ports", receivers="power")
HEADER = header_of(BARE)


def sweep(journal, number, rows=2):
    """A sweep whose content is known by its number."""
    power = np.full((rows, 6), 0.001 * number)
    return journal.step("lines", {"power_w": power}, lambda: {"readings_w": np.full((rows, 3), number + 0.5)})


def written(folder, count, name="run.nc.journal", header=HEADER):
    path = folder / name
    with Journal.create(path, header, now=lambda: 0.0) as journal:
        for number in range(count):
            sweep(journal, number)
    return path


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """Bytes of a journal of three sweeps, and the lengths at which it holds 0, 1, 2 and 3 of them."""
    folder = tmp_path_factory.mktemp("journal")
    path, ends = folder / "run.nc.journal", []
    with Journal.create(path, HEADER, now=lambda: 0.0) as journal:
        ends.append(path.stat().st_size)
        for number in range(3):
            sweep(journal, number)
            ends.append(path.stat().st_size)
        return path.read_bytes(), ends


def numbers(path):
    """Which sweeps a journal holds; fails if one of them is not as it was written."""
    found = []
    for step in read_run(path).steps:
        number = round(step.asked["power_w"][0, 0] / 0.001)
        np.testing.assert_array_equal(step.asked["power_w"], np.full((2, 6), 0.001 * number))
        np.testing.assert_array_equal(step.answered["readings_w"], np.full((2, 3), number + 0.5))
        found.append(number)
    return found


def test_a_journal_cut_at_any_byte_holds_the_sweeps_before_the_cut(content, tmp_path):
    data, ends = content
    path = tmp_path / "run.nc.journal"
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        if length < ends[0]:
            with pytest.raises(CalibrationError, match="ends before the run had measured anything"):
                read_run(path)
            continue
        assert numbers(path) == list(range(sum(length >= end for end in ends[1:])))


def test_a_run_cut_at_any_frame_goes_on_behind_it(content, tmp_path):
    data, ends = content
    path = tmp_path / "run.nc.journal"
    for length in [*ends, *(end - 1 for end in ends[1:]), *(end + 7 for end in ends[:-1])]:
        path.write_bytes(data[:length])
        with Journal.resume(path, HEADER, now=lambda: 0.0) as journal:
            for number in range(3):
                sweep(journal, number)
        assert path.read_bytes() == data


@given(st.data())
def test_flipped_bits_are_never_read_as_data(content, tmp_path_factory, data):
    whole, ends = content
    changed = bytearray(whole)
    for bit in data.draw(st.lists(st.integers(0, 8 * len(whole) - 1), min_size=1, max_size=3, unique=True)):
        changed[bit // 8] ^= 1 << bit % 8
    path = tmp_path_factory.mktemp("flipped") / "run.nc.journal"
    path.write_bytes(changed)
    bounds = list(zip([0, *ends], ends, strict=False))
    damaged = [bytes(changed[a:b]) != whole[a:b] for a, b in bounds]
    good = damaged.index(True)
    if not all(damaged[good:]):  # whole frames follow, so this was no kill
        with pytest.raises(CalibrationError, match=r"damaged|not the journal"):
            read_run(path)
    elif good == 0:
        with pytest.raises(CalibrationError, match=r"ends before|not the journal"):
            read_run(path)
    else:
        assert numbers(path) == list(range(good - 1))


@given(st.binary(max_size=200))
def test_bytes_that_follow_are_a_torn_frame(content, tmp_path_factory, tail):
    path = tmp_path_factory.mktemp("tail") / "run.nc.journal"
    path.write_bytes(content[0] + tail)
    assert numbers(path) == [0, 1, 2]


@pytest.mark.parametrize("where", ["behind", "before", "doubled frame", "lost frame", "swapped frames"])
def test_joined_and_reordered_journals_are_refused(content, tmp_path, where):
    data, ends = content
    other = written(tmp_path, 3, "other.nc.journal", replace(HEADER, seed=4)).read_bytes()
    frames = [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    path = tmp_path / "run.nc.journal"
    path.write_bytes({
        "behind": data + other, "before": other + data, "doubled frame": b"".join([*frames[:2], *frames[1:]]),
        "lost frame": b"".join([frames[0], *frames[2:]]), "swapped frames": b"".join([frames[0], *frames[:0:-1]]),
    }[where])  # fmt: skip
    with pytest.raises(CalibrationError, match=r"damaged or joined with another journal at byte \d+: \d entries are"):
        read_run(path)
    before = path.read_bytes()
    with pytest.raises(CalibrationError, match="cut the file to"):
        Journal.resume(path, HEADER)
    assert path.read_bytes() == before


def test_a_journal_without_its_beginning_is_refused(content, tmp_path):
    data, ends = content
    path = tmp_path / "run.nc.journal"
    path.write_bytes(data[ends[0] :])
    with pytest.raises(CalibrationError, match="its beginning is lost"):
        read_run(path)


@given(st.binary(max_size=300))
def test_other_files_are_refused(tmp_path_factory, other):
    path = tmp_path_factory.mktemp("other") / "run.nc.journal"
    path.write_bytes(other)
    with pytest.raises(CalibrationError, match=r"is not the journal of a calibration|ends before the run"):
        read_run(path)


def test_the_file_is_as_documented(content):
    """Read by the description of the format alone."""
    data, ends = content
    assert data[:4] == b"OPTJ"
    content_of_header = data[32 : ends[0]]
    assert data[4:12] == hashlib.sha256(content_of_header).digest()[:8]
    frame = data[ends[0] : ends[1]]
    assert frame[4:12] == data[4:12]
    assert int.from_bytes(frame[12:16], "little") == 1
    assert frame[16:20] == b"\1\0\0\0"
    assert int.from_bytes(frame[20:28], "little") == len(frame) - 32
    length = int.from_bytes(frame[32:36], "little")
    assert frame[36 : 36 + length].startswith(b'{"stage":"lines"')
    values = np.frombuffer(frame[36 + length :], "<f8")
    np.testing.assert_array_equal(values, [0.0] * 12 + [0.5] * 6)


def never():
    raise AssertionError("measured although it is stored")


def test_stored_sweeps_are_given_back_and_counted(tmp_path):
    path = written(tmp_path, 2)
    with Journal.resume(path, HEADER) as journal:
        assert (journal.replaying, journal.readings) == (True, 0)
        again = journal.step("lines", {"power_w": np.zeros((2, 6))}, never)
        np.testing.assert_array_equal(again["readings_w"], np.full((2, 3), 0.5))
        again["readings_w"][:] = np.nan  # what a caller does to it is its own affair
        assert (journal.replaying, journal.readings) == (True, 2)
        sweep(journal, 1)
        assert (journal.replaying, journal.readings) == (False, 4)
        sweep(journal, 2)
        assert journal.readings == 6
    assert numbers(path) == [0, 1, 2]


@pytest.mark.parametrize(
    ("stage", "asked", "message"),
    [
        ("columns", {"power_w": np.zeros((2, 6))}, "sweep 0 .* what 'columns' asks for: it was measured for 'lines'"),
        ("lines", {"power_w": np.zeros((3, 6))}, r"power_w was float64 \(2, 6\), now float64 \(3, 6\)"),
        ("lines", {"power_w": np.zeros((2, 6), dtype=int)}, "now int64"),
        ("lines", {"lit": np.zeros(2)}, "it was asked for by power_w, now by lit"),
        ("lines", {"power_w": np.eye(2, 6) * 1e-30}, r"power_w\[0, 0\] was 0.0, now 1e-30"),
        ("lines", {"power_w": np.full((2, 6), -0.0)}, "power_w"),
    ],
)
def test_other_requests_than_the_stored_ones_are_refused(tmp_path, stage, asked, message):
    path = written(tmp_path, 1)
    with Journal.resume(path, HEADER) as journal, pytest.raises(CalibrationError, match=message):
        journal.step(stage, asked, never)
    assert numbers(path) == [0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "seed was 3 and is 4"),
        ({"arguments": {"settings": 5}}, "settings was None and is 5"),
        ({"max_total_power_w": 2.0}, r"max_total_power_w was 1\.0 and is 2\.0"),
        ({"layout": ChipLayout(2, inputs="ports", receivers="power")}, "layout was ChipLayout"),
        ({"chip": "other", "seed": 4}, "chip was 'test' and is 'other'; seed was 3"),
    ],
)
def test_another_run_is_refused_by_name(tmp_path, change, message):
    path = written(tmp_path, 1)
    with pytest.raises(CalibrationError, match=f"is of another run: {message}"):
        Journal.resume(path, replace(HEADER, **change))
    Journal.resume(path, HEADER).close()  # and is not held


def test_a_result_is_computed_once_for_the_same_inputs_and_version(tmp_path, monkeypatch):
    calls = []

    def compute():
        calls.append(1)
        return {"offset": np.arange(3.0), "steps": np.array(4)}

    path = written(tmp_path, 1)
    for _ in range(2):
        with Journal.resume(path, HEADER) as journal:
            found = journal.result("fit", {"power_w": np.ones(2)}, compute)
            assert found["steps"] == 4
            assert found["steps"].shape == ()
            np.testing.assert_array_equal(found["offset"], [0.0, 1.0, 2.0])
            sweep(journal, 0)
    assert len(calls) == 1
    with Journal.resume(path, HEADER) as journal:
        for stage, inputs in (("fit", np.zeros(2)), ("other", np.ones(2)), ("fit", np.ones((2, 1)))):
            journal.result(stage, {"power_w": inputs}, compute)
    assert len(calls) == 4
    monkeypatch.setattr("optinc_hw.__version__", "999")
    with Journal.resume(path, HEADER) as journal:
        journal.result("fit", {"power_w": np.ones(2)}, compute)
    assert len(calls) == 5
    assert numbers(path) == [0]


@pytest.mark.parametrize(
    ("asked", "answered", "message"),
    [
        ({"power_w": np.zeros((2, 6))}, {"readings_w": np.zeros((3, 3))}, "different numbers of readings"),
        ({}, {"readings_w": np.array(1.0)}, "different numbers of readings"),
        ({"power_w": np.zeros((2, 6))}, {}, "different numbers of readings"),
        ({"power_w": np.zeros((0, 6))}, {"readings_w": np.zeros((0, 3))}, "has no readings; ask for one"),
        ({}, {"readings_w": np.zeros((0, 3))}, "has no readings; ask for one"),
        ({}, {"time": np.zeros(1)}, "choose other names"),
        ({}, {"a b": np.zeros(1)}, "choose other names"),
        ({"a": np.zeros(1)}, {"a": np.zeros(1)}, "each once"),
        ({}, {"field": np.zeros(1, dtype=complex)}, "complex128; a journal keeps float64"),
        ({}, {"field": np.array([object()])}, "object; a journal keeps float64"),
    ],
)
def test_sweeps_that_no_table_can_hold_are_refused_and_not_stored(tmp_path, asked, answered, message):
    path = written(tmp_path, 1)
    with Journal.resume(path, HEADER) as journal:
        sweep(journal, 0)
        with pytest.raises(CalibrationError, match=message):
            journal.step("lines", asked, lambda: answered)
        sweep(journal, 1)
    assert numbers(path) == [0, 1]


def test_a_sweep_that_fails_is_not_stored(tmp_path):
    path = written(tmp_path, 1)

    def fail():
        raise LinkError("link is dead")

    with Journal.resume(path, HEADER) as journal:
        sweep(journal, 0)
        with pytest.raises(LinkError):
            journal.step("lines", {}, fail)
    assert numbers(path) == [0]


def test_one_process_writes_and_others_read(tmp_path):
    path = tmp_path / "run.nc.journal"
    with Journal.create(path, HEADER) as journal:
        sweep(journal, 0)
        assert numbers(path) == [0]
        with pytest.raises(LinkError, match=r"the file .*run\.nc\.journal is in use by another process or session"):
            Journal.resume(path, HEADER)
    Journal.resume(path, HEADER).close()


def test_a_journal_without_sweeps_leaves_nothing(tmp_path):
    Journal.create(tmp_path / "run.nc.journal", HEADER).close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CalibrationError, match=r"cannot write the run's data to .*missing"):
        Journal.create(tmp_path / "missing" / "run.nc.journal", HEADER)


class Probe:
    layout, max_power_w, max_total_power_w, nominal_efficiency = BARE, np.full(6, 0.1), 1.0, np.full(6, 157.0)
    readings = 0

    def measure(self, stage, power_w, lit):
        return np.outer(power_w.sum(axis=1), np.arange(3.0)) + lit[:, None]


def test_probes_give_back_what_was_measured(tmp_path):
    power, lit = np.arange(12.0).reshape(2, 6) / 100.0, np.array([0, 2])
    path = tmp_path / "run.nc.journal"
    with Journal.create(path, HEADER) as journal:
        probe = JournaledProbe(Probe(), journal)
        measured = probe.measure("lines", power, lit)
        np.testing.assert_array_equal(measured, Probe().measure("lines", power, lit))
        assert probe.readings == 2
    with Journal.resume(path, HEADER) as journal:
        np.testing.assert_array_equal(JournaledProbe(Probe(), journal).measure("lines", power, lit), measured)
    replay = read_run(path).probe()
    assert isinstance(replay, ReplayProbe)
    assert (replay.layout, replay.max_total_power_w) == (BARE, 1.0)
    np.testing.assert_array_equal(replay.nominal_efficiency, np.full(6, 157.0))
    np.testing.assert_array_equal(replay.measure("lines", power, lit), measured)
    with pytest.raises(CalibrationError, match=r"end after 1 sweeps, and lines asks for another one; a replay cannot"):
        replay.measure("lines", power, lit)


def test_a_new_run_moves_an_unfinished_one_aside_and_mentions_it(tmp_path, caplog):
    header = replace(HEADER, arguments={"settings": 7})
    first = written(tmp_path, 2, header=header)
    before = first.read_bytes()
    data_file, journal = open_journal(tmp_path / "run.nc", replace(header, seed=9), None)
    journal.close()
    aside = tmp_path / "run.1.nc.journal"
    assert aside.read_bytes() == before
    assert data_file == tmp_path / "run.nc"
    assert (
        f"{aside} holds 2 sweeps of an unfinished run of this chip; go on with it by "
        f"calibrate(bench, seed=3, settings=7, resume={str(aside)!r}), or remove it"
    ) in caplog.text
    data_file, journal = open_journal(Path("unused.nc"), header, aside)
    journal.close()
    assert data_file == tmp_path / "run.1.nc"


def test_a_run_that_is_not_there_cannot_be_resumed(tmp_path):
    with pytest.raises(CalibrationError, match=r"cannot read the journal .*run\.nc\.journal"):
        open_journal(Path("unused.nc"), HEADER, tmp_path / "run.nc")
