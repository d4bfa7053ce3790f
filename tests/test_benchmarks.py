"""The benchmarks' plain loop computes the same as the engine, and figures become rows and tables as promised."""

import importlib
import json
import math
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from optinc_hw.photonics import MeshModel, MeshPhases, RectangularLayout, mesh_matrix

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def random_case(n, lead, vectors):
    layout, generator = RectangularLayout(n), torch.Generator().manual_seed(n)
    mzis = len(layout.mzis)
    phases = tuple(
        2 * math.pi * torch.rand(*lead, size, dtype=torch.float64, generator=generator) for size in (mzis, mzis, n)
    )
    fields = torch.randn(2, *lead, n, vectors, dtype=torch.complex128, generator=generator)
    return layout, phases, fields[0], fields[1]


@pytest.mark.parametrize("n", [2, 5, 6])
def test_loop_makes_the_matrix_of_the_mesh(module, n):
    layout, phases, _, _ = random_case(n, (), 1)
    matrix = module("_loop").loop_apply(layout)(*phases, torch.eye(n, dtype=torch.complex128))
    expected = mesh_matrix(MeshPhases(layout, *(part.numpy() for part in phases)))
    np.testing.assert_allclose(matrix.numpy(), expected, atol=1e-14)


@pytest.mark.parametrize("name", ["loop_apply", "plain_apply"])
@pytest.mark.parametrize(("n", "lead", "vectors"), [(5, (), 7), (8, (), 20), (6, (9,), 1), (7, (3,), 1)])
def test_loop_has_the_outputs_and_gradients_of_the_model(module, n, lead, vectors, name):
    layout, phases, fields, target = random_case(n, lead, vectors)
    loop, model = getattr(module("_loop"), name)(layout), MeshModel(layout)
    torch.testing.assert_close(loop(*phases, fields), model.apply(*phases, fields), rtol=0, atol=1e-12)
    gradients = module("_gradients").gradients
    expected = gradients(model.apply, phases, fields, target)
    torch.testing.assert_close(gradients(loop, phases, fields, target), expected, rtol=0, atol=1e-10)


def comparison(module, **changes):
    times = {"optinc-hw": 2.0, "product": 1.0, "single precision": 1.6, "peer": 500.0}
    arguments = {"times": times, "errors": {"optinc-hw": 1e-15}, "least": {"peer": 100.0}, "most": {"product": 1.25}}
    return module("_harness").Comparison("task", 64, **(arguments | changes))


def test_ratios_are_held_against_their_goals(module):
    rows = {row["case"]: row for row in comparison(module).rows()}
    peer = rows["task, n = 64: peer over optinc-hw"]
    assert (peer["value"], peer["unit"], peer["goal"], peer["reached"]) == (250.0, "x", "at least 100", True)
    floor = rows["task, n = 64: optinc-hw over product"]
    assert (floor["value"], floor["goal"], floor["reached"]) == (2.0, "at most 1.25", False)
    single = rows["task, n = 64: optinc-hw over single precision"]
    assert (single["value"], single["goal"], single["reached"]) == (1.25, None, None)
    assert rows["task, n = 64: peer"]["value"] == 500.0


def test_missing_peer_is_reported_not_judged(module):
    alone = comparison(module, times={"optinc-hw": 2.0}, most={})
    row = next(row for row in alone.rows() if "not installed" in row["case"])
    assert row["goal"] == "at least 100"
    assert row["reached"] is None
    assert "not measured" in module("_harness").comparison_tables([alone])


def test_written_rows_have_the_documented_keys(module, tmp_path):
    harness = module("_harness")
    rows = [*comparison(module).rows(), harness.at_least("absent", math.nan, "x", 3.0)]
    harness.write_rows(rows, tmp_path / "rows.json")
    written = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))
    assert all(set(row) == {"case", "value", "unit", "goal", "reached", "versions", "threads"} for row in written)
    assert written[-1]["value"] is None
    assert written[0]["versions"]["numpy"] == np.__version__
    assert written[0]["threads"] >= 1


def test_tables_show_ratios_goals_and_errors(module):
    table = module("_harness").comparison_tables([comparison(module), comparison(module, least={}, most={})])
    assert table.count("task (ms of CPU)") == 1
    assert "| 64 | **2** | 1 (2x) | 1.6 (1.25x) | 500 (250x) |" in table
    assert "at least 100x peer: reached; at most 1.25x product: MISSED" in table
    assert "1e-15" in table


def test_every_contender_is_warmed_up_and_sampled(module):
    calls = {"a": 0, "b": 0}

    def call(name):
        calls[name] += 1

    times = module("_harness").cpu_times({name: lambda name=name: call(name) for name in calls}, 0)
    assert set(times) == {"a", "b"}
    assert min(calls.values()) >= 3


def test_exchanges_with_instruments_give_rows_of_all_contenders(module):
    benchmark = module("instruments")
    with benchmark.served() as addresses, ExitStack() as stack:
        rows = [*benchmark.single_rows(addresses, 0.0, stack), *benchmark.bulk_rows(addresses, 0.0, stack)]
    assert {"case", "value", "unit", "goal", "reached"} == set(rows[0])
    judged = [row for row in rows if row["goal"] is not None]
    assert len(judged) == 10
    assert all(row["value"] > 0.0 for row in rows)


def test_damage_of_discovered_chips_is_drawn_as_stated(module):
    damage = module("_damaged").Damage.drawn(8, 3)
    assert (len(damage.swapped), len(damage.dead)) == (3, 3)  # 5 % of 56
    assert not {*damage.swapped} & {*damage.dead}
    assert sorted(damage.wires) == sorted(damage.wires.values())
    assert all(wire != end for wire, end in damage.wires.items())
    wire, end = next(iter(damage.wires.items()))
    assert damage.driven_by[end] == wire
    assert damage.driven_by[damage.dead[0]] is None
    truth = damage.truth(1, wired=True)
    assert (truth["dead_heaters"], sorted(truth["stuck_heaters"])) == ([damage.dead[0]], sorted(damage.dead[1:]))


def test_discovery_is_held_against_finding_all(module):
    benchmark = module("discovery")
    found = [
        benchmark.Found(30, (), (), 0, 900, 1.0),
        benchmark.Found(28, (), ("mzi_0_0_phi", "mzi_0_2_phi"), 0, 1100, 2.0),
    ]
    rows = {row["case"]: row for row in benchmark.figures("6 ports", found)}
    assert rows["6 ports: heaters accused or acquitted wrongly"]["reached"]
    assert rows["6 ports: heaters undecided"]["value"] == 2
    assert not rows["6 ports: heaters undecided"]["reached"]
    assert rows["6 ports: chips on which all is found"]["value"] == 1
    assert rows["6 ports: median readings"]["value"] == 1000
