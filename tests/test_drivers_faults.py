"""Every fault on every driver: the right value, a typed error or a flagged reading, and the next exchange is right.

Which exchange of a driver a fault hits, and where in it, goes round with the fault; ``benchmarks/faults.py`` tries all
of them. What happens while connecting is the same for all configurations of a driver, so one of them stands for all.
"""

import numpy as np
import pytest
from driver_cases import CASES, opened
from fault_exchanges import (
    ALIKE,
    ERROR,
    FAULTS,
    FLAGGED,
    LIGHT,
    NOT_HIT,
    PATIENT_S,
    RIGHT,
    HeaterExchanges,
    rig_of,
)
from qcodes.instrument import Instrument

from optinc_hw.errors import IdentityError, InstrumentError, LinkError, OptincError
from simulated_instruments.faults import (
    DeadDetector,
    DriftingHeater,
    Frozen,
    ModeHop,
    OffsetDetector,
    OpenHeater,
    PowerDrop,
    Refused,
    SaturatedDetector,
    ShortedHeater,
    WrongIdentity,
)


def of_role(*roles):
    cases = [case for case in CASES if case.role in roles]
    return pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])


every_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
_BY_DRIVER = {(case.driver, case.hislip): case for case in CASES}
every_driver = pytest.mark.parametrize("case", _BY_DRIVER.values(), ids=[case.id for case in _BY_DRIVER.values()])
VARIANTS = {
    "late by 0.1 s",
    "truncated by its last byte",
    "garbled end",
    "flipped bit 4",
    "dropped before",
    "unasked before",
}
"""Faults of which the tests try another variant."""


@every_case
def test_no_fault_of_the_link_makes_a_wrong_number(case):
    problems = []
    with rig_of(case) as rig:
        for turn, (name, fault) in enumerate((n, f) for n, f in FAULTS.items() if n not in VARIANTS):
            kind = ("read", "put")[(turn + len(case.id)) % 2]
            after = turn % 3
            outcome = rig.suffer(fault, kind, after)
            if outcome == NOT_HIT:  # it has fewer commands
                rig.device.timeout(PATIENT_S)
                rig.exchanges.put(0)
                outcome = rig.suffer(fault, kind, 0)
            rest = rig.carry_on(fault, kind)
            if outcome not in (RIGHT, ERROR, FLAGGED, ALIKE) or rest:
                problems.append(f"{name} in {kind}: {outcome}; {rest}")
            rig.exchanges.put(0)
    assert problems == []


@every_driver
def test_nothing_is_sent_to_an_instrument_of_wrong_identity(case):
    with rig_of(case) as rig:
        rig.faults.inject("device", WrongIdentity(b"ACME,Toaster,0,1.0"), count=None)
        rig.device.timeout(0.03)
        with pytest.raises(InstrumentError):
            rig.device.reconnect()
        assert {*rig.faults.counts()["device"]} == {"wrong_identity"}
        with pytest.raises(LinkError):
            rig.exchanges.put(0)
        rig.faults.clear()
        rig.device.timeout(PATIENT_S)
        rig.device.reconnect()
        assert rig.exchanges.put(0) == RIGHT
        assert rig.exchanges.read() == RIGHT


@every_driver
def test_no_partial_driver_stays_when_connecting_fails(case):
    with rig_of(case, device=False) as rig:
        address = rig.bench.addresses["device"]
        for fault in (WrongIdentity(b"\xffACME,Toaster,0,1.0"), Frozen(), Refused()):
            rig.faults.inject("device", fault, count=None)
            with pytest.raises(InstrumentError):
                case.driver("device", address, timeout=0.05, **case.init)
            assert not Instrument.exist("device")
            rig.faults.clear()
        with opened(case, address, rig.clock) as device:
            assert device.get_idn()["vendor"]


@every_driver
def test_swapped_plugs_are_noticed_before_anything_is_sent(case):
    with rig_of(case) as rig:
        rig.device.timeout(0.03)
        rig.faults.swap("device", "other")
        with pytest.raises(OptincError):
            rig.exchanges.put(1)
        with pytest.raises((IdentityError, InstrumentError)):
            rig.device.reconnect()
        rig.faults.swap("device", "other")
        rig.device.timeout(PATIENT_S)
        rig.device.reconnect()
        assert rig.exchanges.put(0) == RIGHT
        assert rig.exchanges.read() == RIGHT


@every_driver
def test_refused_connections_for_a_while(case):
    with rig_of(case) as rig:
        rig.faults.inject("device", Refused(), count=None, for_s=10.0)
        rig.faults.drop("device")
        for _ in range(2):
            with pytest.raises(OptincError):
                rig.exchanges.read()
            with pytest.raises(InstrumentError):
                rig.device.reconnect()
        rig.clock.sleep(10.0)
        rig.device.reconnect()
        assert rig.exchanges.put(0) == RIGHT
        assert rig.exchanges.read() == RIGHT


# What is wrong on the chip ------------------------------------------------------------------------------------------


@of_role("heaters")
def test_open_heater_reads_no_current(case):
    with rig_of(case) as rig:
        name = rig.chip.layout.heaters[0]
        rig.faults.inject_on_chip(OpenHeater(name))
        assert rig.device.read_currents()[0] == pytest.approx(0.0, abs=2e-5)
        assert rig.device.read_voltages()[0] == pytest.approx(1.5, abs=5e-3)
        assert rig.device.channels[0].resistance.get() == np.inf
        assert rig.exchanges.put(1) == RIGHT
        assert rig.exchanges.read() == RIGHT


@of_role("heaters")
def test_drifting_heater_reads_its_present_current(case):
    with rig_of(case) as rig:
        rig.faults.inject_on_chip(DriftingHeater(rig.chip.layout.heaters[0], per_s=0.1))
        before = rig.device.read_currents()[0]
        rig.clock.sleep(5.0)
        assert rig.device.read_currents()[0] == pytest.approx(before / 1.5, rel=0.03)
        assert rig.exchanges.read() == RIGHT


@of_role("heaters")
def test_shorted_heater_runs_into_its_source_s_limit(case):
    """No source gives more than 1 A, and none reads a current that does not flow."""
    with rig_of(case) as rig:
        rig.faults.inject_on_chip(ShortedHeater(rig.chip.layout.heaters[0]))
        for which in (None, 1, 0):
            try:
                if which is not None:
                    rig.device.set_voltages({0: HeaterExchanges.targets[which][0]})
                current = rig.device.read_currents()[0]
            except OptincError:  # a source may report that it was overloaded
                continue
            assert np.isnan(current) or current == pytest.approx(rig.chip.heater_current(0), rel=0.02, abs=3e-5)
        assert 0.0 <= rig.chip.heater_current(0) < 1.001
        rig.faults.clear()
        rig.device.read_currents()  # limits go by the resistance that was measured last
        rig.prepare()


@of_role("meter")
def test_meters_read_what_faulty_light_and_detectors_give(case):
    with rig_of(case) as rig:
        device, chip = rig.device, rig.chip
        wired = min(device.port_count, len(chip.layout.detectors))
        chip.set_laser(*LIGHT)
        right = device.read_powers().power_w[0]
        for fault, expected in (
            (PowerDrop(0.5), chip.measure([0], 1.0)[0] / 2.0),
            (ModeHop(2e-9), None),
            (OffsetDetector(chip.layout.detectors[0], 3e-6), right + 3e-6),
            (DeadDetector(chip.layout.detectors[0]), 0.0),
        ):
            rig.faults.inject_on_chip(fault)
            reading = device.read_powers()
            assert reading.valid[:wired].all()
            truth = chip.measure(range(wired), 1.0)
            np.testing.assert_allclose(reading.power_w[:wired], truth, rtol=5e-3, atol=2e-8)
            if expected is not None:
                assert reading.power_w[0] == pytest.approx(expected, rel=5e-3, abs=2e-8)
            rig.faults.clear()


@of_role("meter")
def test_saturated_detector_is_flagged(case):
    with rig_of(case) as rig:
        rig.faults.inject_on_chip(SaturatedDetector(rig.chip.layout.detectors[0]))
        reading = rig.device.read_powers()
        assert not reading.valid[0]
        assert np.isnan(reading.power_w[0])
        rig.faults.clear()
        assert rig.exchanges.read() == RIGHT
