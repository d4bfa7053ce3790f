"""What holds for every heater source on its simulated instrument: no jumps, whatever was there before or goes wrong."""

import contextlib
import locale
import re
import socket

import numpy as np
import pytest
from _recording_proxy import RecordingProxy
from driver_cases import CASES, opened, simulated

from optinc_hw.errors import DeviceError, LimitError, LinkError
from simulated_instruments.faults import Dropped, ShortedHeater

LEFT_V = 3.3
STEP_V = 1.0  # of ramps, by default
LEFT_ON = {
    "keithley_2600": b"smua.source.levelv=3.3 smua.source.output=1\nprint(1)\n",
    "keithley_2601b": b"smua.source.levelv=3.3 smua.source.output=1\nprint(1)\n",
    "nicslab_counts": b"CH:1:VOLT:5407\n*IDN?\n",
    "nicslab_units": b"CH:1:VOLT:3.3\n*IDN?\n",
    "qdevil_qdac2": b"sour1:volt 3.3\n*idn?\n",
}
"""How somebody else leaves 3.3 V on the first channel, and a question that is answered when it is done."""


class Trace:
    """Voltages of the first heater, one after the other."""

    def __init__(self, chip):
        self.volts = [chip.heater_voltage(0)]
        chip.watch_heaters(lambda _, values: self.volts.append(values.get(0, self.volts[-1])))

    def largest_step(self):
        return max(abs(np.diff(self.volts)), default=0.0)


@pytest.fixture(params=[case for case in CASES if case.id in LEFT_ON], ids=lambda case: case.id)
def bench(request):
    with simulated(request.param) as (running, chip, clock):
        yield request.param, running, chip, clock


def leave_on(case, running):
    port = int(re.search(r"127\.0\.0\.1(?:::|:)(\d+)", running.addresses["device"])[1])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(LEFT_ON[case.id])
        connection.recv(4096)


def test_an_output_left_on_is_reported_and_ramps_only_on_command(bench):  # D-41, D-44
    case, running, chip, clock = bench
    leave_on(case, running)
    trace = Trace(chip)
    with opened(case, running.addresses["device"], clock) as source:
        assert source.nonzero_outputs() == {0: pytest.approx(LEFT_V, abs=0.01)}
        source.snapshot(update=True)
        assert trace.volts == [pytest.approx(LEFT_V, abs=1e-3)]
        source.set_voltages({0: 5.5})
        assert chip.heater_voltage(0) == pytest.approx(5.5, abs=0.01)
        assert min(trace.volts) > LEFT_V - 0.01
        source.make_safe()
    assert chip.heater_voltage(0) == pytest.approx(0.0, abs=1e-3)
    assert trace.largest_step() <= STEP_V + 0.01


def test_an_output_left_on_stays_on_when_nobody_touches_it(bench):
    case, running, chip, clock = bench
    leave_on(case, running)
    with opened(case, running.addresses["device"], clock) as source:
        source.read_voltages()
    assert chip.heater_voltage(0) == pytest.approx(LEFT_V, abs=1e-3)


def test_an_exception_in_user_code_ends_at_zero_without_a_jump(bench):  # D-41
    case, running, chip, clock = bench
    trace = Trace(chip)

    def use():
        with opened(case, running.addresses["device"], clock) as source:
            source.set_voltages({0: 4.5})
            raise RuntimeError("user")

    with pytest.raises(RuntimeError, match="user"):
        use()
    assert chip.heater_voltage(0) == pytest.approx(0.0, abs=1e-3)
    assert max(trace.volts) == pytest.approx(4.5, abs=0.01)
    assert trace.largest_step() <= STEP_V + 0.01


@pytest.mark.parametrize("noticed", [True, False], ids=["link dropped", "link kept"])
def test_a_restart_of_the_instrument_is_no_jump_either(bench, noticed):
    """After a power failure the outputs are at 0 V; the next ramp must not go on from where the last one ended."""
    case, running, chip, clock = bench
    with opened(case, running.addresses["device"], clock) as source:
        source.set_voltages({0: 4.5})
        running.faults.restart("device", drop=noticed)
        assert chip.heater_voltage(0) == 0.0
        if noticed:
            source.reconnect()
        trace = Trace(chip)
        source.set_voltages({0: 4.0})
        assert trace.volts[-1] == pytest.approx(4.0, abs=0.01)
        assert trace.largest_step() <= STEP_V + 0.01


def test_a_link_that_breaks_in_mid_ramp_is_mended_once_when_closing(bench):
    case, running, chip, clock = bench
    with opened(case, running.addresses["device"], clock) as source:
        source.set_voltages({0: 2.0})
        trace = Trace(chip)
        running.faults.inject("device", Dropped("unheard"), match=rb"(?i)volt|levelv", after=1)
        with pytest.raises(LinkError) as caught:
            source.set_voltages({0: 6.0})
        assert "the ramp stopped in" in "".join(caught.value.__notes__)
    assert chip.heater_voltage(0) == pytest.approx(0.0, abs=1e-3)
    assert trace.largest_step() <= STEP_V + 0.01


def test_limits_of_current_and_power_take_the_first_step_back(bench):
    case, running, chip, clock = bench
    with opened(case, running.addresses["device"], clock) as source:
        source.set_channel_limits(0, max_power=5e-3)
        with pytest.raises(LimitError, match="power"):
            source.set_voltages({0: 6.0})
        assert chip.heater_voltage(0) == pytest.approx(0.0, abs=0.01)


def test_a_short_is_an_error_or_within_the_limit(bench):
    case, running, chip, clock = bench
    with opened(case, running.addresses["device"], clock) as source:
        source.set_channel_limits(0, max_current=5e-3)
        running.faults.inject_on_chip(ShortedHeater(chip.layout.heaters[0], resistance_ohm=5.0))
        with pytest.raises((LimitError, DeviceError)):
            source.set_voltages({0: 3.0})
        running.faults.clear()


def test_numbers_have_points_in_every_locale(bench):  # D-31
    case, running, _, clock = bench
    before = locale.setlocale(locale.LC_NUMERIC)
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8"):
        with contextlib.suppress(locale.Error):
            locale.setlocale(locale.LC_NUMERIC, name)
    try:
        with (
            RecordingProxy(running.addresses["device"]) as proxy,
            opened(case, proxy.address, clock) as source,
        ):
            source.set_voltages({0: 0.5})
            sent = proxy.sent
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)
    assert b"0,5" not in sent
    assert {"nicslab_counts": b":819\n"}.get(case.id, b"0.5") in sent
