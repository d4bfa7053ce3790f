"""An open bench when something breaks: whatever is hit, heaters never jump, readings are true, and the end is safe."""

import gc
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from qcodes.instrument import Instrument
from safety_benches import FAMILIES, HEATERS, bank_names, rig_of, write_folder

from drivers._serial_port import SerialPort
from drivers._visa_port import VisaPort
from optinc_hw.bench import write_bench_folder
from optinc_hw.clock import WallClock
from optinc_hw.errors import InstrumentError, LinkError, OptincError
from simulated_instruments import HiddenChip, SimulatedBench
from simulated_instruments.bench import default_bench
from simulated_instruments.faults import Dropped, Frozen, LostReply, LostWrite, Refused, Restarted

LOW, HIGH, OTHER = (np.linspace(*ends, HEATERS) for ends in ((1.0, 2.0), (5.0, 6.0), (4.0, 1.0)))
FAULTS = (
    Restarted(drop=False), Restarted(), LostWrite(), LostReply(), Frozen(), Dropped("unheard"), Dropped("after")
)  # fmt: skip
PATIENT_S, HASTY_S = 5.0, 0.06


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def folder(tmp_path, family):
    return write_folder(tmp_path / "bench", family)


def be_patient(bench, timeout_s):
    for name in bench.description.roles:
        bench.station.components[name].timeout(timeout_s)


def mend(bench):
    """Do what the messages say: reconnect links that are down."""
    for name in bench.description.roles:
        instrument = bench.station.components[name]
        if instrument._link.broken:
            instrument.reconnect()


def insist(bench, action):
    """Try again after an error, as a user would; what a fault left behind may show once more."""
    for _ in range(3):
        mend(bench)
        with suppress(OptincError):
            return action()
    mend(bench)
    return action()


# In the middle of an exchange -------------------------------------------------------------------------------------


def test_no_fault_in_the_middle_of_a_ramp_makes_a_jump_or_a_false_belief(folder, family, monkeypatch):
    bank = bank_names(family)[0]
    for index, fault in enumerate(FAULTS):
        with rig_of(folder, monkeypatch) as rig:
            for after in (index % 3, 4 + index):
                suffer(rig, bank, fault, after)
            assert rig.jumps(restarted=isinstance(fault, Restarted)) == [], fault
        assert rig.volts().max() == 0.0


def suffer(rig, bank, fault, after):
    """Let a fault hit command number ``after`` of a move: what the bench believes and does then is right."""
    bench = rig.bench
    insist(bench, lambda: bench.set_voltages(LOW))
    rig.faults.inject(bank, fault, match=b"", after=after)
    be_patient(bench, HASTY_S)
    with suppress(OptincError):
        bench.set_voltages(HIGH)
        np.testing.assert_allclose(bench.voltages, HIGH)
        np.testing.assert_allclose(rig.volts(), HIGH, atol=0.02)
    be_patient(bench, PATIENT_S)
    rig.simulated.faults._links[bank].clear()
    insist(bench, lambda: bench.set_voltages(OTHER))
    np.testing.assert_allclose(rig.volts(), OTHER, atol=0.02)
    np.testing.assert_allclose(bench.read_heaters().voltage_v, OTHER, atol=0.03)
    np.testing.assert_allclose(bench.voltages, OTHER)


def test_readings_after_a_restart_of_any_instrument_are_those_of_before_or_an_error(folder, monkeypatch):
    """A switch, meter or laser that loses its settings, with and without its link."""
    with rig_of(folder, monkeypatch) as rig:
        bench = rig.bench
        bench.set_voltages(LOW)
        bench.light(True)
        bench.settle()
        before = bench.read_detectors()
        assert before.valid.all()
        for name, role in bench.description.roles.items():
            for drop in (False, True):
                rig.faults.restart(name, drop=drop)
                if role == "laser":
                    insist(bench, lambda: bench.light(True))
                if role == "heaters":
                    insist(bench, bench.read_heaters)
                    insist(bench, lambda: bench.set_voltages(OTHER))
                    bench.set_voltages(LOW)
                    bench.settle()
                with suppress(InstrumentError):
                    reading = bench.read_detectors()
                    np.testing.assert_allclose(reading.power_w[reading.valid], before.power_w[reading.valid], rtol=0.05)
                reading = insist(bench, bench.read_detectors)
                assert reading.valid.all(), name
                np.testing.assert_allclose(reading.power_w, before.power_w, rtol=0.05)


# Interruptions ----------------------------------------------------------------------------------------------------


class Interruptions:
    """Raises SIGINT before or after a chosen call of a port, and counts the calls."""

    def __init__(self, monkeypatch):
        self.count, self.at = 0, None
        for kind in (SerialPort, VisaPort):
            for name in ("send", "receive"):
                monkeypatch.setattr(kind, name, self._wrapped(getattr(kind, name)))

    def _wrapped(self, original):
        def call(port, *args):
            self._tick()
            result = original(port, *args)
            self._tick()
            return result

        return call

    def _tick(self):
        if threading.current_thread() is threading.main_thread():
            self.count += 1
            if self.count == self.at:
                signal.raise_signal(signal.SIGINT)


def test_ctrl_c_at_any_exchange_ends_safe(folder, monkeypatch):
    interruptions = Interruptions(monkeypatch)

    def session(at):
        with rig_of(folder, monkeypatch) as rig:
            try:
                with rig.bench as bench:
                    interruptions.count, interruptions.at = 0, at
                    bench.light(True)
                    bench.set_voltages(LOW)
                    bench.read_heaters()
                    bench.read_detectors()
                    bench.set_voltages(OTHER)
            finally:
                interruptions.at = None
                assert rig.volts().max() == 0.0
                assert rig.is_dark()
                assert rig.jumps() == []

    session(None)
    total = interruptions.count
    for at in np.linspace(1, total, 4, dtype=int)[:-1]:
        with pytest.raises(KeyboardInterrupt):
            session(at)


@pytest.fixture
def rig(tmp_path, monkeypatch):
    """A bench of Qontrol modules."""
    with rig_of(write_folder(tmp_path / "bench", "qontrol"), monkeypatch) as opened:
        yield opened


def test_after_ctrl_c_in_make_safe_the_same_voltages_are_sent_again(rig, monkeypatch):
    rig.bench.set_voltages(LOW)
    with monkeypatch.context() as patched:
        interruptions = Interruptions(patched)
        interruptions.at = 3
        with pytest.raises(KeyboardInterrupt):
            rig.bench.make_safe()
    assert rig.volts().max() == 0.0
    np.testing.assert_array_equal(rig.bench.voltages, 0.0)
    rig.bench.set_voltages(LOW)
    np.testing.assert_allclose(rig.volts(), LOW, atol=0.01)


def test_ctrl_c_while_another_thread_holds_the_bench_does_not_leave_it_hot(rig):
    rig.bench.set_voltages(LOW)
    held = threading.Event()

    def hold():
        with rig.bench._session.lock:
            held.set()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=hold)

    def leave():
        with rig.bench:
            thread.start()
            held.wait(5.0)  # the signal comes here, at the end of the block, or while the bench waits for its lock

    with pytest.raises(KeyboardInterrupt):
        leave()
    thread.join()
    assert rig.volts().max() == 0.0


def test_what_could_not_be_made_safe_is_told_also_after_ctrl_c(rig, monkeypatch):
    rig.bench.light(True)
    rig.bench.set_voltages(LOW)
    rig.faults.drop("heaters_0")
    rig.faults.inject("heaters_0", Refused(), count=None)
    with monkeypatch.context() as patched:
        interruptions = Interruptions(patched)
        interruptions.at = 1
        with pytest.raises(KeyboardInterrupt) as caught:
            rig.bench.close()
    assert any("heaters_0" in note and "may not be in the safe state" in note for note in caught.value.__notes__)
    assert rig.is_dark()


# The end ----------------------------------------------------------------------------------------------------------


def test_one_dead_instrument_leaves_all_others_safe_and_is_named(folder, monkeypatch):
    with rig_of(folder, monkeypatch) as opened:
        roles = opened.bench.description.roles
    for role, dead in {role: name for name, role in roles.items()}.items():  # the last one of each role
        with rig_of(folder, monkeypatch, timeout_s=0.1) as rig:
            rig.bench.light(True)
            rig.bench.read_detectors()
            rig.bench.set_voltages(LOW)
            rig.faults.inject(dead, Refused(), count=None)
            rig.faults.drop(dead)
            if role in ("heaters", "laser"):
                with pytest.raises(InstrumentError, match=rf"1 instrument\(s\) may not be .*{dead}"):
                    rig.bench.close()
            else:
                rig.bench.close()
        hot = {k for k, volts in enumerate(rig.volts()) if volts > 0.0}
        attachments = rig.bench.description.heater_attachments
        assert hot == (set(attachments[dead].elements.tolist()) if role == "heaters" else set())
        assert rig.is_dark() == (role != "laser")
        rig.faults.clear()


def test_an_instrument_that_restarts_while_it_is_made_safe(folder, family, monkeypatch):
    for after in (1, 4):
        with rig_of(folder, monkeypatch) as rig:
            rig.bench.light(True)
            rig.bench.set_voltages(HIGH)
            rig.faults.inject(bank_names(family)[0], Restarted(drop=after == 1), match=b"", after=after)
            with suppress(InstrumentError):
                rig.bench.close()
        assert rig.volts().max() == 0.0
        assert rig.is_dark()
        assert rig.jumps(restarted=True) == []


def test_closing_all_instruments_of_qcodes_in_the_middle(rig):
    rig.bench.light(True)
    rig.bench.set_voltages(LOW)
    Instrument.close_all()
    assert rig.volts().max() == 0.0
    assert rig.is_dark()
    with pytest.raises(LinkError, match="closed"):
        rig.bench.set_voltages(HIGH)
    rig.bench.close()
    assert rig.jumps() == []


def test_a_bench_that_nobody_holds_any_more_is_not_moved_by_the_garbage_collector(rig):
    """It ends safe when Python ends: `test_bench_leaving`; a collection at any moment must not ramp heaters."""
    rig.bench.set_voltages(LOW)
    volts, rig.bench = rig.volts(), None
    gc.collect()
    np.testing.assert_array_equal(rig.volts(), volts)


FORK = """
import os, sys
import numpy as np
from optinc_hw.bench import Bench
bench = Bench.open(sys.argv[1])
bench.light(True)
voltages = np.full(len(bench.layout.heaters), 1.0)
bench.set_voltages(voltages)
child = os.fork()
if child == 0:
    for action in (lambda: bench.set_voltages(2.0 * voltages), bench.read_detectors, bench.make_safe):
        try:
            action()
        except Exception as error:
            print("refused" if "forked copy of the link" in str(error) else error, flush=True)
    sys.exit(0)  # with everything that Python, QCoDeS and pyvisa do at the end
os.waitpid(child, 0)
print(bench.read_heaters().voltage_v.round(1).tolist() == voltages.tolist(), bench.read_detectors().valid.all())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_can_neither_drive_the_bench_nor_end_its_connections(tmp_path):
    """As worker processes of a data loader are."""
    clock = WallClock()
    chip = HiddenChip.from_seed(0, 2, clock=clock)
    instruments, wiring = default_bench(2)
    with SimulatedBench(chip, instruments, wiring, clock) as simulated:
        write_bench_folder(tmp_path / "bench", 2, simulated.addresses)
        command = [sys.executable, "-c", FORK, str(tmp_path / "bench")]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["refused", "refused", "refused", "True", "True"]
    assert max(chip.heater_voltage(k) for k in range(HEATERS)) == 0.0
