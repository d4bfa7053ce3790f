"""Numbers that are out of range are refused where they are given, by their own name."""

import math

import pytest

from optinc_hw.errors import ComparisonError, ScheduleError
from optinc_hw.interconnect import LinkParameters
from optinc_hw.interconnect.comparison import (
    EnergyParameters,
    LinkBudget,
    MeshLoss,
    Network,
    NetworkDesign,
    Server,
    fastest_ranges,
    splitting_loss_db,
)

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("reconfiguration_s", "tuning_s", "control_s", "message_s", "switch_s")
          for value in (-1.0, NAN, INF)),
        *(("rate_bps", value) for value in (0.0, -1.0, NAN, INF)), *(("reduce_Bps", value) for value in (0.0, NAN)),
        *((name, value) for name in ("wavelengths", "reach", "ports", "fan_in") for value in (0, -1, 2.5, True)),
        ("wavelengths", None), ("ports", None), ("ports", 1), ("fan_in", 1), ("rated", "rack"), ("setup", "never"),
    ],
)  # fmt: skip
def test_a_network_names_the_field_that_is_wrong(name, value):
    with pytest.raises(ComparisonError, match=f"^{name} of a network must be .* got "):
        Network(**{name: value})


def test_what_a_network_may_leave_open():
    network = Network(reach=None, fan_in=None, reduce_Bps=INF, message_s=0.0, wavelengths=1, reconfiguration_s=0.0)
    assert (network.reach, network.fan_in) == (None, None)


@pytest.mark.parametrize("rate", [INF, NAN, 0.0])
def test_links_have_a_finite_rate(rate):
    with pytest.raises(ScheduleError, match="rate_bps of the links must be positive and finite"):
        LinkParameters(rate_bps=rate)
    assert LinkParameters(reduce_Bps=INF).reduce_Bps == INF


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("laser_dbm", "sensitivity_dbm") for value in (NAN, INF, -INF)),
        *((name, value) for name in ("coupling_db", "margin_db") for value in (NAN, INF, -1.0)),
        *(("node_db", value) for value in (NAN, INF, 0.0)),
    ],
)  # fmt: skip
def test_a_link_budget_names_the_field_that_is_wrong(name, value):
    with pytest.raises(ComparisonError, match=f"^{name} of a link must be "):
        LinkBudget(**{name: value})


@pytest.mark.parametrize("branches", [0, -4, NAN, INF, 2.5])
def test_splitters_have_whole_branches(branches):
    with pytest.raises(ComparisonError, match="branches of a splitter must be an integer of at least 1"):
        splitting_loss_db(branches)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": (4,)}, "sizes of an optical network must be two or more"), ({"sizes": ()}, "sizes"),
        ({"sizes": (4, 0, 4)}, "sizes"), ({"servers": 1}, "servers of an optical network"), ({"bits": 0}, "bits"),
        ({"mzis": -1}, "mzis"), ({"passes": 0}, "passes"), ({"approximated": frozenset({3})}, "among 1 to 2, got .3"),
        ({"approximated": frozenset({0})}, "approximated layers"),
    ],
)  # fmt: skip
def test_impossible_designs_are_refused(change, message):
    fields = {"name": "net", "servers": 4, "bits": 8, "sizes": (4, 8, 4), "approximated": frozenset({1}), "mzis": 50}
    assert NetworkDesign(**fields).columns == (4 + 1) + (8 + 4 + 1)
    with pytest.raises(ComparisonError, match=message):
        NetworkDesign(**fields | change)


def test_other_impossible_parts_are_refused():
    for build in (
        lambda: Server(0.0), lambda: Server(1.0, 1.5), lambda: MeshLoss(gain_db=0.0), lambda: MeshLoss(column_db=NAN),
        lambda: EnergyParameters(heater_W=-1.0), lambda: EnergyParameters(lane_bps=0.0),
        lambda: EnergyParameters(carrier_W=INF),
    ):  # fmt: skip
        with pytest.raises(ComparisonError):
            build()


def test_of_no_schedules_none_is_the_fastest():
    with pytest.raises(ComparisonError, match="name at least one"):
        fastest_ranges([])
