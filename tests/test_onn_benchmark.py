"""The benchmark's table of networks: right on perfect chips, and its numbers are where rates cross 1e-3."""

import math
from pathlib import Path

import pytest

from optinc_hw.onn import ChipErrors, simulate_chips


@pytest.fixture
def folder(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))


@pytest.mark.usefixtures("folder")
def test_every_network_of_the_table_is_right_on_perfect_chips():
    from _onn_networks import chains, many_servers, networks, trained

    entries = [*networks(), *chains(), *many_servers(), *trained()]
    assert len({entry.name for entry in entries}) == len(entries)
    for entry in entries:
        found = simulate_chips(entry.network, ChipErrors(), entry.form, chips=1, inputs=300, copies=entry.copies)
        assert found.rate == 0.0, entry.name


@pytest.mark.usefixtures("folder")
def test_tolerances_are_where_the_symbol_error_rate_crosses_the_limit():
    from _onn_networks import chains
    from _onn_tolerance import KINDS, LIMIT, QUICK_CHIPS, QUICK_INPUTS, Measured

    entry = next(entry for entry in chains() if entry.quick)
    rows = {row["case"].removeprefix(f"{entry.name}: "): row for row in Measured(entry, quick=True).rows()}
    for kind in KINDS:
        largest = rows[f"{kind} at {LIMIT:g}"]["value"]
        assert 0.0 < largest < 1.0
        rates = [
            simulate_chips(
                entry.network, ChipErrors(**{kind: size}), entry.form, chips=QUICK_CHIPS, inputs=QUICK_INPUTS
            ).rate
            for size in (largest, largest * math.exp(math.log(1e6) / 2**8))
        ]  # fmt: skip
        assert rates[0] <= LIMIT < rates[1]
    bits = int(rows[f"bits at {LIMIT:g}"]["value"])
    coarse, fine = (
        simulate_chips(entry.network, ChipErrors(dac_bits=count), entry.form, chips=1, inputs=QUICK_INPUTS).rate
        for count in (bits - 1, bits)
    )
    assert fine <= LIMIT < coarse
    assert rows["MZIs"]["value"] == 28  # four cells of 1 and 6 MZIs


@pytest.mark.usefixtures("folder")
def test_the_table_in_plain_text():
    from _onn_tolerance import aligned, shown

    assert [shown(0.0123, "rad"), shown(0.0123, "%"), shown(0.97, "%")] == ["0.012 rad", "1.2 %", "any"]
    assert aligned([("a", "long"), ("bcd", "e")]).splitlines() == ["| a   | long |", "|-----|------|", "| bcd | e    |"]
