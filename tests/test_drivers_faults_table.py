"""The benchmark of faults counts what happens, and its rows and tables say so."""

import importlib
from collections import Counter
from pathlib import Path

import pytest
from driver_cases import CASES
from fault_exchanges import ERROR, FAULTS, RIGHT, WRONG
from fault_situations import BETWEEN


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module("faults")


def test_every_fault_is_counted(module):
    case = next(case for case in CASES if case.id == "dicon_1xn")
    counts = module.driver_counts(case, (3,), 1)
    assert {name for name in counts if counts[name]} == {*FAULTS, *BETWEEN}
    assert all(counts[name].total() == 2 for name in FAULTS)  # one that reads and one that sets
    assert counts["split"] == {RIGHT: 2}
    assert counts["plugs swapped"] == {ERROR: 1}


def test_wrong_numbers_and_what_follows_are_goals(module):
    counts = {
        "good": {"late": Counter({RIGHT: 3, ERROR: 2}), "open": Counter()},
        "bad": {"late": Counter({WRONG: 1, RIGHT: 1, "next wrong": 2}), "open": Counter({RIGHT: 1})},
    }
    rows = {row["case"]: row for row in module.figures(counts)}
    assert rows["good, late: wrong numbers"]["reached"] is True
    assert rows["bad, late: wrong numbers"]["reached"] is False
    assert rows["bad, late: next exchange not right"]["value"] == 2
    assert not [case for case in rows if case.startswith("good, open")]
    assert rows[f"all drivers and faults: {RIGHT}"]["value"] == 5
    assert rows["all drivers and faults: wrong numbers"] == {
        "case": "all drivers and faults: wrong numbers", "value": 1, "unit": "exchanges",
        "goal": "at most 0", "reached": False,
    }  # fmt: skip
    table = module.table(counts)
    assert "| late | 3 / 2 / 0 / 0 / 0 | 1 / 0 / 0 / 0 / 1* |" in table
    assert "| open | 0 / 0 / 0 / 0 / 0 | 1 / 0 / 0 / 0 / 0 |" in table
