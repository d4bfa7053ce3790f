"""What all heater banks share: known starts, switched outputs, and heaters that never jump."""

import re
import sys
from typing import ClassVar

import numpy as np
import pytest
import serial
from _scripted_link import ScriptedPort
from driver_cases import CASES, opened, simulated
from qcodes.instrument import Instrument

from drivers import Qontrol
from drivers._dialect import Dialect
from drivers._heater_bank import HeaterBankInstrument
from drivers._heater_outputs import HeaterWire
from drivers._link import Link
from drivers._parsing import Identity, parse_identity, parse_number
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import DeviceError, LimitError

HEATERS = [case for case in CASES if case.role == "heaters"]
QONTROLS = [case for case in HEATERS if issubclass(case.driver, Qontrol)]
ACME = Dialect(terminator=b"\n", resync_command="*IDN?", resync_reply=re.compile(rb"ACME,.*"))


class LabWire(HeaterWire):
    """Two channels of 10 V and 50 mA: one command a channel, and no way to ask for voltages."""

    channel_count, full_voltage, full_current, tells_voltage = 2, 10.0, 50e-3, False

    def __init__(self, link):
        self.link = link

    def read(self, quantity, channel):
        return self.link.query(f"{quantity}{channel}?", parse_number)

    def read_all(self, quantity, *, tolerate_errors=False):
        return [self.read(quantity, channel) for channel in range(2)]

    def send(self, voltages, *, tolerate_errors=False):
        [(channel, volts)] = voltages.items()
        self.link.write(f"V{channel} {volts:.3f}")

    def finish(self, voltages):
        if self.link.query("ERR?", parse_number) != 0.0:
            raise self.link.device_error("it says that something went wrong")


class SwitchedWire(LabWire):
    """The same with voltages that can be read and outputs that must be switched on."""

    tells_voltage, has_switches = True, True

    def enable(self, channels):
        self.link.write("ON " + ",".join(map(str, channels)))
        return channels

    def finish(self, voltages):
        pass

    def disable(self):
        self.link.write("OFF")


class LabBank(HeaterBankInstrument):
    """A heater driver as a lab would write it."""

    wire_class: ClassVar = LabWire

    def __init__(self, name, port):
        super().__init__(name, ramp_step=1.0, ramp_interval=0.5)
        self._attach(Link(port, ACME, owner=name, timeout=1.0, shared_line=False))
        self._add_outputs(self.wire_class(self._live_link()), port.address)
        self.clock = SimulatedClock()

    def _identify(self):
        self._ask_identity()

    def _ask_identity(self):
        return self._live_link().query("*IDN?", parse_identity)


class SwitchedBank(LabBank):
    """A heater driver with switches."""

    wire_class: ClassVar = SwitchedWire


def commands(*texts):
    return [(f"{text}\n".encode(), b"0\n" if text == "ERR?" else b"") for text in texts]


@pytest.fixture
def made():
    """Make banks on scripts and close them without another word."""
    banks = []

    def make(*exchanges, driver=LabBank):
        port = ScriptedPort((b"*IDN?\n", b"ACME,Lab,1,2\n"), *exchanges)
        banks.append(driver("lab", port))
        return banks[-1], port

    yield make
    for bank in banks:
        if Instrument.is_valid(bank):
            if bank._outputs is not None:
                bank._outputs.driven = False
            bank.close()


# A start that nobody knows ----------------------------------------------------------------------------------------


def test_unknown_start_of_a_write_only_bank_is_refused_and_nothing_is_sent(made):
    bank, port = made()
    with pytest.raises(LimitError, match=r"channels \[0, 1\].*not known.*declare_voltages"):
        bank.set_voltages({0: 1.0, 1: 2.0})
    assert np.isnan(bank.read_voltages()).all()
    assert np.isnan(bank.read_voltage(1))
    assert bank.nonzero_outputs().keys() == {0, 1}  # it cannot be said that they are off
    port.check_finished()


def test_ramps_of_a_write_only_bank_begin_at_the_declared_start(made):
    ramp = commands("V0 3.000", "V1 1.000", "V0 2.500", "ERR?", "V1 0.500", "ERR?")
    bank, port = made(*ramp)
    bank.declare_voltages({0: 4.0, 1: 0.0})
    bank.set_voltages({0: 2.5, 1: 1.0})
    bank.set_voltages({1: 0.5})
    assert bank.read_voltages().tolist() == [2.5, 0.5]
    assert bank.nonzero_outputs() == {0: 2.5, 1: 0.5}
    assert bank.clock.now() == 1.0
    port.check_finished()


def test_closing_a_write_only_bank_ramps_from_what_was_set(made):
    bank, port = made(*commands("V0 1.000", "V0 2.000", "ERR?", "V0 1.000", "V1 0.000", "V0 0.000"))
    bank.declare_voltages({0: 0.0, 1: 0.5})
    bank.set_voltages({0: 2.0})
    bank.close()
    port.check_finished()


def test_an_unknown_channel_of_a_write_only_bank_is_made_safe_at_once(made):
    bank, port = made(*commands("V0 2.000", "V1 0.000", "V0 1.000", "V0 0.000"))
    bank.declare_voltages({0: 3.0})
    bank.make_safe()
    assert bank.read_voltages().tolist() == [0.0, 0.0]
    port.check_finished()


def test_after_an_error_a_write_only_bank_does_not_guess(made):
    bank, port = made(*commands("V0 1.000"), (b"ERR?\n", b"7\n"))
    bank.declare_voltages({0: 0.0, 1: 0.0})
    with pytest.raises(DeviceError, match="went wrong"):
        bank.set_voltages({0: 1.0})
    with pytest.raises(LimitError, match="not known"):
        bank.set_voltages({0: 0.5})
    port.check_finished()


@pytest.mark.parametrize(
    ("values", "message"),
    [({0: -0.1}, "0 V to 10 V"), ({0: 10.1}, "0 V to 10 V"), ({0: np.nan}, "nan V"), ({2: 1.0}, "no channel 2")],
)
def test_impossible_declarations_are_refused(made, values, message):
    bank, _ = made()
    with pytest.raises(LimitError, match=message):
        bank.declare_voltages({1: 1.0} | values)
    assert np.isnan(bank.read_voltages()).all()


def test_what_can_be_read_cannot_be_declared(made):
    bank, _ = made(driver=SwitchedBank)
    with pytest.raises(LimitError, match="read from the instrument"):
        bank.declare_voltages({0: 1.0})


# Outputs with switches ---------------------------------------------------------------------------------------------


def test_outputs_are_switched_on_before_a_ramp_and_off_in_the_safe_state(made):
    on = [*commands("ON 1", "V1 1.000", "V1 1.500")]
    off = [(b"V0?\n", b"0.0\n"), (b"V1?\n", b"1.5\n"), *commands("V0 0.000", "V1 0.500", "V1 0.000")]
    bank, port = made(*on, *off, (b"V0?\n", b"0.0\n"), (b"V1?\n", b"0.01\n"), *commands("OFF"), driver=SwitchedBank)
    bank.set_voltages({1: 1.5})
    bank.close()
    port.check_finished()


def test_an_interrupt_while_switching_on_is_followed_by_the_safe_state(made):
    class Interrupted(ScriptedPort):
        def send(self, data):
            super().send(data)
            if data.startswith(b"ON"):
                raise KeyboardInterrupt

    zero = [(b"V0?\n", b"0.0\n"), (b"V1?\n", b"0.0\n")]
    steps = [(b"*IDN?\n", b"ACME,Lab,1,2\n"), *commands("ON 0"), (b"*IDN?\n", b"ACME,Lab,1,2\n")]
    port = Interrupted(*steps, *zero, *commands("V0 0.000", "V1 0.000"), *zero, *commands("OFF"))
    bank = SwitchedBank("lab", port)
    with pytest.raises(KeyboardInterrupt):
        bank.set_voltages({0: 1.0})
    bank.close()
    port.check_finished()


def test_an_interrupted_step_counts_from_the_next_answer(made):
    """The instrument may have been busy and have made it only just before it answered."""
    clock, moves, answered = SimulatedClock(), [], []

    class Busy(ScriptedPort):
        def send(self, data):
            super().send(data)
            if data.startswith(b"V") and not data.endswith(b"?\n"):
                moves.append(clock.now())
            if data == b"V0 2.000\n":
                raise KeyboardInterrupt
            if data.endswith(b"?\n"):
                clock.sleep(0.3)
                answered.append(clock.now())

    idn, steps = [(b"*IDN?\n", b"ACME,Lab,1,2\n")], commands("ON 0", "V0 1.000", "V0 2.000")
    zero = [(b"V0?\n", b"0.0\n"), (b"V1?\n", b"0.0\n")]
    up = [(b"V0?\n", b"2.0\n"), zero[1]]
    down = commands("V0 1.000", "V1 0.000", "V0 0.000")
    port = Busy(*idn, *steps, *idn, *up, *down, *zero, *commands("OFF"))
    bank = SwitchedBank("lab", port)
    bank.clock = clock
    with pytest.raises(KeyboardInterrupt):
        bank.set_voltages({0: 3.0})
    bank.close()
    port.check_finished()
    read = max(time for time in answered if time <= moves[2])
    assert moves[1] < read
    assert moves[2] - read == pytest.approx(0.5)


# Heaters that never jump ------------------------------------------------------------------------------------------


class Trace:
    """Every voltage that is set on a chip's heaters."""

    def __init__(self, chip):
        self.chip = chip
        self.last = {k: chip.heater_voltage(k) for k in range(len(chip.layout.heaters))}
        self.highest, self.largest_step, self.changes = max(self.last.values()), 0.0, 0
        chip.watch_heaters(self._note)

    def _note(self, _time_s, values):
        for heater, volts in values.items():
            self.largest_step = max(self.largest_step, abs(volts - self.last[heater]))
            self.changes += volts != self.last[heater]
            self.highest = max(self.highest, volts)
            self.last[heater] = volts


@pytest.mark.parametrize("case", QONTROLS, ids=lambda case: case.id)
def test_no_transients_before_during_and_after_a_run(case):
    with simulated(case) as (bench, chip, clock):
        chip.set_heater_voltages({0: 2.0})  # somebody else left it on
        trace = Trace(chip)
        with opened(case, bench.addresses["device"], clock) as heaters:
            heaters.snapshot(update=True)
            assert trace.changes == 0
            heaters.set_channel_limits(1, max_voltage=3.0)
            heaters.set_voltages({0: 2.7, 1: 3.0, 5: 0.4})
            heaters.channels[1].voltage(1.2)
            heaters.set_voltages({0: 0.1, 5: 2.4})
            with pytest.raises(LimitError):
                heaters.set_voltages({0: 1.0, 1: 3.5})
            assert trace.highest <= 3.0 + 2e-4
        assert set(trace.last.values()) == {0.0}
        assert trace.largest_step <= 1.0 + 2e-4  # half a converter step at either end


@pytest.mark.parametrize("case", QONTROLS, ids=lambda case: case.id)
def test_an_exception_in_a_run_ramps_the_heaters_down(case):
    with simulated(case) as (bench, chip, clock):
        trace = Trace(chip)

        def run():
            with opened(case, bench.addresses["device"], clock) as heaters:
                heaters.set_voltages({0: 4.0})
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            run()
        assert trace.last[0] == 0.0
        assert trace.largest_step <= 1.0 + 2e-4


@pytest.mark.parametrize("case", QONTROLS, ids=lambda case: case.id)
def test_outputs_left_on_by_a_dead_process_are_reported_and_move_only_on_command(case):
    with simulated(case) as (bench, chip, clock):
        with opened(case, bench.addresses["device"], clock) as killed:
            killed.set_voltages({0: 4.0})
            killed._live_link().close()  # the process is gone, and with it all that it would have done
        trace = Trace(chip)
        with opened(case, bench.addresses["device"], clock) as heaters:
            assert heaters.nonzero_outputs() == {0: pytest.approx(4.0, abs=2e-3)}
            assert trace.changes == 0
            heaters.make_safe()
            assert trace.largest_step <= 1.0 + 2e-4
            assert heaters.nonzero_outputs() == {}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_connecting_sends_no_break_and_clears_nothing(monkeypatch):
    case = QONTROLS[0]

    def locks_up(*_args):
        raise AssertionError("the device has locked up")

    for name in ("send_break", "reset_input_buffer", "reset_output_buffer"):
        monkeypatch.setattr(serial.Serial, name, locks_up)
    with simulated(case) as (bench, _, clock), opened(case, bench.open_pty("device"), clock) as heaters:
        heaters.set_voltages({0: 1.0})
        assert heaters.read_voltage(0) == pytest.approx(1.0, abs=2e-3)


def test_identity_of_the_lab_bank(made):
    bank, _ = made((b"*IDN?\n", b"ACME,Lab,1,2\n"))
    assert bank.get_idn() == Identity("ACME", "Lab", "1", "2").as_dict()
