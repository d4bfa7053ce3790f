"""Rules that every driver keeps, checked on the simulated instrument of its hardware."""

import json
import re
import threading
from pathlib import Path

import pytest
from _recording_proxy import RecordingProxy
from driver_cases import CASES, all_parameters, opened, simulated
from qcodes.instrument import Instrument
from qcodes.station import Station
from qcodes.validators import Ints, Numbers

import drivers
from drivers import HeaterBank, Laser, PowerMeter, Switch

PROTOCOLS = {"heaters": HeaterBank, "laser": Laser, "meter": PowerMeter, "switch": Switch}
UNITS = {"V", "A", "W", "ohm", "m", "s", "dBm", "dB", "Hz", "K", "m/s", ""}
CYCLES, QUERIES = 500, 1000
REPEATED = 20
"""Further cases of a class repeat this share of what its first case does in full."""


@pytest.fixture(params=CASES, ids=lambda case: case.id)
def case(request):
    return request.param


@pytest.fixture
def bench(case):
    with simulated(case) as (running, chip, clock):
        yield running, chip, clock


@pytest.fixture
def device(case, bench):
    running, _, clock = bench
    with opened(case, running.addresses["device"], clock) as instrument:
        yield instrument


def test_every_driver_class_is_a_case():
    classes = [value for value in vars(drivers).values() if isinstance(value, type) and issubclass(value, Instrument)]
    assert {case.driver for case in CASES} == set(classes)


def test_every_parameter_says_what_it_is(device):
    seen = 0
    for parameter in all_parameters(device):
        if parameter.name == "IDN":  # QCoDeS' own
            continue
        seen += 1
        documented = re.search(r"(Control|Measure|Set|Get) [a-z].*\.", parameter.__doc__ or "")
        assert documented, parameter.full_name
        assert parameter.label, parameter.full_name
        assert parameter.label != parameter.name, parameter.full_name
        assert parameter.unit in UNITS, parameter.full_name
        assert parameter.unit != "dBm" or parameter.name.endswith("_dbm"), parameter.full_name
        assert parameter.vals is not None, parameter.full_name
        verbs = ("Control", "Set") if parameter.settable else ("Measure", "Get")
        assert documented.group(1) in verbs, parameter.full_name
    assert seen > 1


def test_settable_numbers_have_bounds(device):
    for parameter in all_parameters(device):
        if parameter.settable and isinstance(parameter.vals, Ints | Numbers):
            low, high = parameter.vals._min_value, parameter.vals._max_value
            assert -1e15 < low <= high < 1e15, parameter.full_name


def test_settable_parameters_accept_their_own_output(device):
    for parameter in all_parameters(device):
        if parameter.settable and parameter.gettable:
            parameter.set(parameter.get())


def test_snapshots_are_plain_json_and_readable(device, capsys):
    for update in (True, False, None):
        snapshot = device.snapshot(update=update)
        assert snapshot == json.loads(json.dumps(snapshot, allow_nan=False))
    device.print_readable_snapshot()
    assert device.name in capsys.readouterr().out


def test_it_fits_the_protocol_of_its_role(case, device):
    protocol = PROTOCOLS[case.role]
    wanted = {name for name in vars(protocol) | protocol.__annotations__ if not name.startswith("_")}
    assert wanted
    assert not [name for name in wanted if not hasattr(device, name)]


def test_it_lives_in_a_station(device):
    station = Station(device)
    station.close_all_registered_instruments()
    assert not Instrument.exist(device.name)


def test_connecting_snapshots_and_closing_only_ask(case, bench):
    running, _, clock = bench
    with RecordingProxy(running.addresses["device"]) as proxy:
        with opened(case, proxy.address, clock) as instrument:
            instrument.snapshot(update=True)
            instrument.get_idn()
        sent = [line for line in proxy.sent.split(case.terminator) if line.strip()]
    assert sent
    assert [line for line in sent if case.query.fullmatch(line) is None] == []


def test_a_closed_driver_can_be_closed_again_and_its_name_is_free(case, bench):
    running, _, clock = bench
    for _ in range(2):
        with opened(case, running.addresses["device"], clock) as instrument:
            instrument.close()


def scaled(count, case):
    """How often a case does what its class must do ``count`` times."""
    first = next(other for other in CASES if other.driver is case.driver)
    return count if case is first else count // REPEATED


def test_handles_stay_flat_over_many_sessions(case, bench):
    running, _, clock = bench

    def cycle():
        with opened(case, running.addresses["device"], clock):
            pass

    handles = Path("/proc/self/fd")  # other platforms do not say what is open; threads are counted everywhere

    def count():
        for thread in threading.enumerate():
            if thread.name.endswith(" client"):  # the server's end of a connection closes a moment after ours
                thread.join()
        return len(list(handles.iterdir())) if handles.exists() else 0, threading.active_count()

    for _ in range(3):
        cycle()
    handles_before, threads_before = count()
    for _ in range(scaled(CYCLES, case) - 3):
        cycle()
    handles_after, threads_after = count()
    assert handles_after <= handles_before
    assert threads_after <= threads_before


def test_two_threads_get_their_own_answers(case, device):
    """One thread asks for the identity, one for the link's other replies; a mix-up cannot parse."""
    idn = device.get_idn()
    readable = [
        p for p in all_parameters(device) if p.gettable and p.name not in ("IDN", "timeout") and p.snapshot_value
    ][:1]
    problems = []

    def ask_identity():
        others = [found for _ in range(scaled(QUERIES, case)) if (found := device.get_idn()) != idn]
        problems.extend(others)

    def ask_value():
        for _ in range(scaled(QUERIES, case)):
            for parameter in readable:
                parameter.validate(parameter.get())

    def run(action):
        try:
            action()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test reports it
            problems.append(error)

    assert readable
    threads = [threading.Thread(target=run, args=(action,)) for action in (ask_identity, ask_value)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
