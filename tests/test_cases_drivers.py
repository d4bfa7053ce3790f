"""Problem reports of others, tried on our drivers and simulated instruments.

The rows of the project's collection of public problem reports, and the test that tries each:

=====  ==========================================================================================================
D-01   ``test_d01_...`` below; ``test_drivers_link.test_late_reply_is_never_taken_for_the_next_one``
D-02   ``test_d02_...`` below
D-04   ``test_drivers_link.test_mixed_line_ends_leave_no_stray_byte``
D-05   ``test_d05_...`` below
D-07   ``test_d07_...`` below; ``test_drivers_link.test_any_splitting_of_the_bytes_gives_the_same_lines``
D-08   Does not apply: nobody can ask for a number of bytes. Where a reply tells its own size, that is bounded:
       ``test_drivers_link.test_malformed_blocks_raise``
D-10   ``test_d10_d11_...`` below
D-11   ``test_d10_d11_...`` below
D-13   ``test_d13_...`` below; ``test_drivers_faults.test_swapped_plugs_are_noticed_before_anything_is_sent``.
       Addresses by serial number are those of pyserial and VISA (``hwgrep://``, ``USB0::...::SERIAL::INSTR``)
D-14   ``test_drivers_rules.test_two_threads_get_their_own_answers``
D-16   ``test_drivers_rules.test_handles_stay_flat_over_many_sessions``
D-17   ``test_d17_...`` below; ``test_drivers_ports.test_closing_one_visa_port_leaves_the_others_alone``
D-19   ``test_d19_...`` below
D-20   ``test_d20_...`` below
D-22   ``test_drivers_faults.test_no_partial_driver_stays_when_connecting_fails``
D-23   ``test_drivers_heater_bank.test_connecting_sends_no_break_and_clears_nothing``: no driver clears or breaks when
       it connects, so there is no option to forbid it
D-25   ``test_d25_...`` below; ``test_drivers_santec.test_endless_error_queue_ends``
D-26   ``test_drivers_parsing.test_codes_are_no_values``; for every meter
       ``test_drivers_faults.test_saturated_detector_is_flagged``
D-28   ``test_over_range...`` and the like of each driver's file, and ``test_drivers_parsing``
D-29   property tests of the parsers: ``test_drivers_parsing``, ``test_drivers_qdevil``, ``test_drivers_thorlabs``, ...
D-31   ``test_drivers_heater_sources.test_numbers_have_points_in_every_locale``, ``test_drivers_thorlabs``
D-32   ``test_drivers_thorlabs.test_another_unit_is_refused_at_every_reading``, ``test_drivers_keysight_log``,
       ``test_drivers_santec_mpm``: units other than the parameter's are refused or converted
D-34   ``test_drivers_thorlabs.test_another_unit_is_refused_at_every_reading``, ``test_drivers_keysight_log``
D-35   ``test_drivers_keysight``, ``test_drivers_santec_mpm``, ``test_drivers_thorlabs``
D-37   waiting and what is verified then: ``test_drivers_santec``, ``test_drivers_santec_settings``,
       ``test_drivers_keysight_laser``, ``test_drivers_cobrite``
D-38   ``test_d38_...`` below; ``test_drivers_nicslab.test_every_seventh_write_is_lost``
D-40   ``test_drivers_rules.test_connecting_snapshots_and_closing_only_ask``, for every driver
D-41   ``test_served_bench.test_sweeps_that_end_by_signal_exception_or_kill``; ``test_drivers_heater_sources``
D-43   ``test_drivers_heater_bank.test_no_transients_before_during_and_after_a_run``; ``test_served_bench``
D-44   ``test_drivers_heater_bank.test_unknown_start_of_a_write_only_bank_is_refused_and_nothing_is_sent``
S-01   the tests of ``restart()`` in the file of each simulated instrument
S-02   ``test_s02_...`` below
S-04   ``test_simulated_faults.test_binary_frames_pass_whole_through_a_link_with_faults``;
       ``test_drivers_keysight.test_block_with_line_ends_and_split_anywhere``; ``test_drivers_hislip``
S-05   Does not apply: simulated instruments are servers behind sockets and pseudo-terminals, whose bytes the
       operating system counts; nothing of ours tells how many are waiting
S-07   ``test_simulated_keysight_system.test_laser_and_heaters_change_the_readings_through_the_chip_alone``
S-08   ``test_photonics_heaters``; ``test_simulated_chip_state.test_switching_one_effect_off_leaves_the_others``
S-10   ``test_simulated_chip_state.test_same_seed_same_chip_other_seed_other_chip``; ``test_aggregation_quantizer``
S-11   ``test_photonics_layouts``
=====  ==========================================================================================================
"""

import os
import re
import signal
import socket
import threading

import pytest
from driver_cases import CASES, opened, simulated
from fault_exchanges import LIGHT, RIGHT, rig_of
from qcodes.instrument import Instrument

from drivers._dialect import Dialect
from drivers._link import Link
from drivers._serial_port import SerialPort
from drivers._visa_port import VisaPort
from optinc_hw.errors import DeviceError, IdentityError, InstrumentError, LinkError, LinkTimeoutError, OptincError
from simulated_instruments.faults import (
    Dropped,
    ErrorFlood,
    Frozen,
    Late,
    LostWrite,
    Split,
    Stuttered,
    Truncated,
    WrongIdentity,
)

SHORT_S = 0.3  # passes where it must, and is enough for what comes before
ENDLESS_S = 600.0  # a test that waited so long would be ended by pytest


def cases_of(*roles):
    cases = [case for case in CASES if case.role in roles]
    return pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])


def case_of(name):
    return next(case for case in CASES if case.id == name)


every_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


@cases_of("laser")
def test_d01_late_power_is_never_the_wavelength(case):
    with rig_of(case) as rig:
        rig.device.timeout(SHORT_S)
        rig.faults.inject("device", Late())
        with pytest.raises(OptincError):
            rig.device.power()
        rig.device.timeout(5.0)
        assert rig.device.wavelength() == pytest.approx(1550e-9, abs=1e-12)
        assert rig.device.power() == pytest.approx(5e-3, rel=0.01)


@pytest.mark.parametrize("kind", ["visa socket", "serial socket", "pseudo-terminal", "hislip"])
def test_d02_a_reply_is_read_when_it_is_there_and_not_at_the_timeout(kind):
    name = "thorlabs_pm100d" if kind in ("visa socket", "hislip") else "qontrol_q8iv"
    with simulated(case_of(name)) as (bench, _, _):
        if kind == "hislip":
            address = bench.open_hislip("device")
        elif kind == "pseudo-terminal":
            address = bench.open_pty("device")
        else:
            address = bench.addresses["device"]
        port = VisaPort(address, "@py", b"\n") if "::" in address else SerialPort(address, 115200)
        question, answer = ("*IDN?", "PM100D") if "::" in address else ("ID?", "Q8iv")
        dialect = Dialect(terminator=b"\n", resync_command=question, resync_reply=re.compile(rb".*"))
        link = Link(port, dialect, owner="device", timeout=ENDLESS_S, shared_line=False)
        try:
            assert answer in link.query(question, str)
        finally:
            link.close()


@every_case
def test_d05_identity_with_a_repeated_first_character_is_refused(case):
    with rig_of(case, device=False) as rig:
        rig.faults.inject("device", Stuttered(), match=rb"(?i)^(\*IDN|ID|NUPALL)\?", count=None)
        address = rig.bench.addresses["device"]
        if case.id.startswith("dicon"):  # its reply begins with a line end, which may come as often as it likes
            with opened(case, address, rig.clock) as device:
                assert device.get_idn()["vendor"] == "DiCon"
                return
        with pytest.raises(InstrumentError, match=r"([A-Z])\1\1\1"):
            case.driver("device", address, timeout=SHORT_S, **case.init)
        assert not Instrument.exist("device")


@cases_of("meter")
def test_d07_a_number_in_pieces_is_one_number(case):
    with rig_of(case) as rig:
        rig.faults.inject("device", Split(piece=3, pause_s=0.002), count=None)
        for _ in range(2):
            assert rig.exchanges.read() == RIGHT
        assert rig.faults.counts()["device"]["split"] > 0


@cases_of("meter", "laser")
def test_d10_d11_part_of_a_reply_is_told_and_never_returned(case):
    with rig_of(case) as rig:
        rig.device.timeout(SHORT_S)
        rig.faults.inject("device", Truncated(keep=1 << 20))
        with pytest.raises(LinkTimeoutError) as caught:
            rig.exchanges.read()
        partial = rig.faults.hits("device")[-1].reply[:-1]
        assert repr(partial)[2:-1].rstrip("\\r") in str(caught.value)
        assert rig.device._link.dirty
        rig.device.timeout(5.0)
        assert rig.exchanges.read() == RIGHT


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("santec_tsl570", b"SANTEC,TSL-570,99999999,0001.0000.0001"),
        ("keysight_n7745a", b"Agilent Technologies,N7744A,DE99999999,V1.16"),
        ("qontrol_q8iv", b"Q8iv-0099"),
    ],
)
def test_d13_another_instrument_of_the_same_kind_gets_no_command(name, other):
    with rig_of(case_of(name)) as rig:
        rig.faults.drop("device")
        with pytest.raises(LinkError):
            rig.exchanges.put(1)
        rig.faults.inject("device", WrongIdentity(other), count=None)
        rig.device.timeout(SHORT_S)
        with pytest.raises(IdentityError):
            rig.device.reconnect()
        with pytest.raises(LinkError):
            rig.exchanges.put(1)


def test_d17_closing_one_driver_leaves_the_others_alone():
    with rig_of(case_of("santec_tsl570")) as rig:
        meter_case = case_of("keysight_n7745a")
        meter = meter_case.driver("meter", rig.bench.addresses["other"], ports=2)
        rig.device.close()
        meter.initialise(LIGHT[1], 1e-2)
        assert meter.read_powers().valid.all()
        for instrument in (meter, rig.device) * 2:
            instrument.close()


@cases_of("heaters")
def test_d19_a_link_that_breaks_in_a_long_ramp(case):
    with rig_of(case) as rig:
        device, target = rig.device, 1.5 + 0.5
        device.ramp_step = 0.5 / 1000
        writes = r"VVEC|^[\x80-\xff]" if "qontrol" in case.id else r"volt|VOLT|level"
        rig.faults.inject(
            "device", Dropped("before"), match=rf"(?s)(?!.*\?)(?={writes}|.*({writes}))".encode(), after=500
        )
        with pytest.raises(LinkError) as caught:
            device.set_voltages({0: target})
        assert re.search(r"the ramp stopped in step \d+; last set: 0: (\d\.\d{4} V|unknown)", caught.value.__notes__[0])
        reached = rig.chip.heater_voltage(0)
        assert 1.5 < reached < target
        with pytest.raises(LinkError, match="reconnect"):
            device.set_voltages({0: target})
        device.reconnect()
        assert device.read_voltages()[0] == pytest.approx(rig.chip.heater_voltage(0), abs=5e-3)
        device.ramp_step = 1.0
        device.set_voltages({0: target})
        assert rig.chip.heater_voltage(0) == pytest.approx(target, abs=5e-3)


@pytest.mark.skipif(os.name == "nt", reason="Windows interrupts no waiting socket")
@pytest.mark.parametrize("name", ["santec_tsl570", "qontrol_q8iv"])
def test_d20_an_interrupt_ends_an_opening_that_nobody_answers(name):
    case = case_of(name)
    with rig_of(case_of("qontrol_q8iv")) as heaters, rig_of(case, device=False) as rig:
        assert heaters.chip.heater_voltage(0) > 1.0
        rig.faults.inject("device", Frozen(), count=None)
        ended = threading.Event()
        caller = threading.Thread(target=_interrupt_when_frozen, args=(rig, ended))
        caller.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                case.driver("second", rig.bench.addresses["device"], timeout=ENDLESS_S, **case.init)
        finally:
            ended.set()
            caller.join()
            heaters.device.close()
        assert rig.faults.counts()["device"]  # the interrupt came while nobody answered
        assert not Instrument.exist("second")
        assert heaters.chip.heater_voltage(0) == 0.0


def _interrupt_when_frozen(rig, ended):
    rig.faults.wait_for("device", 1, 60.0)
    os.kill(os.getpid(), signal.SIGINT)
    # A signal between Python's last look and the system call that waits does not end that call.
    while not ended.wait(30.0):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("count", [0, 1, 50, 100_000])
@pytest.mark.parametrize("name", ["santec_tsl570", "thorlabs_pm100d", "polatis_oxc", "keysight_n7745a"])
def test_d25_every_error_of_a_queue_in_one_exception(name, count):
    with rig_of(case_of(name)) as rig:
        if count == 0:
            assert rig.exchanges.put(1) == RIGHT
        else:
            rig.faults.inject("device", ErrorFlood(count), match=rb"^[^?*]*$")
            with pytest.raises(DeviceError, match="error queue held") as caught:
                rig.exchanges.put(1)
            told = str(caught.value).partition("Latest traffic")[0].count(";") + 1
            assert told == count if count == 1 else 2 <= told <= 101
        assert rig.exchanges.put(0) == RIGHT
        assert rig.exchanges.put(1) == RIGHT


@cases_of("heaters", "laser", "switch")
def test_d38_every_seventh_write_is_lost(case):
    """Each set is right, perhaps after a repetition that the driver counts, or raises."""
    outcomes = []
    with rig_of(case) as rig:
        for turn in range(14):
            loses = turn % 7 == 6
            if loses:
                rig.faults.inject("device", LostWrite(), match=rb"^[^?]*$")
            rig.device.timeout(SHORT_S if loses else 5.0)
            try:
                outcomes.append(rig.exchanges.put(turn % 2))
            except OptincError as error:
                outcomes.append(error)
        assert rig.faults.counts()["device"] == {"lost_write": 2}
        assert all(outcome == RIGHT or isinstance(outcome, InstrumentError) for outcome in outcomes)
        assert outcomes.count(RIGHT) >= 10
        rig.device.timeout(5.0)
        assert rig.exchanges.put(0) == RIGHT


@every_case
def test_s02_unread_bytes_do_not_survive_a_session(case):
    with rig_of(case, device=False) as rig:
        address = rig.bench.addresses["device"]
        port = int(re.search(r"127\.0\.0\.1(?:::hislip0,|:+)(\d+)", address)[1])
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"*IDN?\r\n*IDN?;ID?\r\n")
        with opened(case, address, rig.clock) as device:
            first = device.get_idn()
            assert first["vendor"]
            assert device.get_idn() == first
