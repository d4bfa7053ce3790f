"""Scripts of faults: plain values, rules that make no sense, unknown targets."""

import re

import pytest
from fault_boxes import Served, ask

from optinc_hw.errors import ConfigurationError
from simulated_instruments.faults import FaultScript, FaultStep, Late, OpenHeater


@pytest.fixture
def served():
    running = Served("box", "other")
    yield running
    running.close()


@pytest.fixture
def client(served):
    return served.connect()


def test_script_of_plain_values(served, client):
    script = FaultScript.from_dicts(
        [
            {"fault": "late", "instrument": "box", "match": "GET", "after": 1, "after_s": 2.0},
            {"fault": "unasked", "instrument": "box", "data": "\xff", "where": "after", "count": None, "for_s": 1},
        ]
    )
    assert script.steps[0] == FaultStep(Late(), "box", b"GET", after=1, after_s=2.0)
    served.faults.play(script)
    ask(client, b"GET?\n", b"0\r\n\xff")
    served.clock.sleep(2.0)
    ask(client, b"GET?\n", b"0\r\n")
    client.sendall(b"GET?\n")
    ask(client, b"*IDN?\n", b"0\r\nAcme,box,1,2\r\n")


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ({}, "fault None is none of late"),
        ({"fault": "lte", "instrument": "box"}, "'lte' is none of"),
        ({"fault": "late"}, "name its instrument"),
        ({"fault": "late", "instrument": "box", "pause_s": 1}, "pause_s cannot be given for fault late"),
        ({"fault": "late", "instrument": "box", "seconds": -1}, "seconds cannot be -1"),
        ({"fault": "split", "instrument": "box", "piece": 0}, "piece cannot be 0"),
        ({"fault": "split", "instrument": "box", "piece": 1.5}, "piece cannot be 1.5"),
        ({"fault": "dropped", "instrument": "box", "when": "never"}, "when cannot be 'never'"),
        ({"fault": "late", "instrument": "box", "after_s": -1.0}, "no span of time"),
        ({"fault": "open_heater", "heater": "a", "count": 2}, "leave instrument, match, after and count out"),
        ({"fault": "open_heater"}, "heater"),
    ],
)
def test_scripts_that_make_no_sense_are_refused(step, problem):
    with pytest.raises(ConfigurationError, match=rf"step 0: .*{re.escape(problem)}|step 0: {re.escape(problem)}"):
        FaultScript.from_dicts([step])


@pytest.mark.parametrize(
    ("rule", "problem"),
    [({"after": -1}, "no rule"), ({"count": 0}, "no rule"), ({"match": b"("}, "no pattern")],
)
def test_rules_that_make_no_sense_are_refused(served, rule, problem):
    with pytest.raises(ConfigurationError, match=problem):
        served.faults.inject("box", Late(), **rule)


def test_unknown_targets_are_named(served):
    with pytest.raises(ConfigurationError, match=r"'bx'.*box, other"):
        served.faults.inject("bx", Late())
    with pytest.raises(ConfigurationError, match="no chip"):
        served.faults.inject_on_chip(OpenHeater("a"))
