"""Logging, zeroing and ranges of the Keysight driver: against byte-exact scripts, and on the simulated meter."""

import contextlib
import struct

import numpy as np
import pytest
from _scripted_link import ScriptServer, raises_in_time
from driver_cases import CASES, opened, simulated

from drivers import KeysightN7745A
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LimitError, LinkTimeoutError, ReplyError

IDN = (b"*IDN?\n", b"Keysight Technologies,N7745C,MY1,V2.0\n")
NO_ERROR = (b"syst:err?\n", b'+0,"No error"\n')
SLOTS = (b"read:pow:all:conf?\n", b"#18\x01\x00\x01\x00\x02\x00\x01\x00\n")
WATTS = [(b"sens1:pow:unit?\n", b"+1\n"), (b"sens2:pow:unit?\n", b"+1\n")]
OVER, UNDER = 3.4028235e38, -3.4028235e38
PARAMETERS = (b"sens1:func:par:logg?\n", b"+3,+1.00000000E-003\n")


def lines(*commands):
    return "".join([command + "\n" for command in commands]).encode()


def setting(mode):
    stops = ["sens1:func:stat logg,stop", "sens2:func:stat logg,stop"]
    routing = [] if mode == "ign" else ["trig:conf def"]
    inputs = [f"trig1:inp {mode}", f"trig2:inp {mode}"]
    return (lines(*stops, *routing, *inputs, "sens1:func:par:logg 3,1.00000000E-03"), None)


def arming(mode="ign"):
    start = lines("sens1:func:stat logg,star", "sens2:func:stat logg,star")
    return [*WATTS, NO_ERROR, setting(mode), NO_ERROR, PARAMETERS, (start, None), NO_ERROR]


def states(*texts):
    return [(f"sens{slot}:func:stat?\n".encode(), text + b"\n") for slot, text in enumerate(texts, start=1)]


def block(*values):
    data = struct.pack(f"<{len(values)}f", *values)
    return b"#" + str(len(str(len(data)))).encode() + str(len(data)).encode() + data + b"\n"


RUNNING, DONE = b"LOGGING_STABILITY,PROGRESS", b"LOGGING_STABILITY,COMPLETE"
STOPPING = [
    (lines("sens1:func:stat logg,stop", "sens2:func:stat logg,stop", "trig1:inp ign", "trig2:inp ign"), None),
    NO_ERROR,
]


def results(*rows):
    return [(f"sens{slot}:func:res?\n".encode(), block(*row)) for slot, row in enumerate(rows, start=1)]


@contextlib.contextmanager
def meter_on(*steps, timeout=5.0, **options):
    with ScriptServer(IDN, SLOTS, *steps) as server:
        meter = KeysightN7745A("meter", server.visa_address, ports=2, timeout=timeout, **options)
        meter.clock = SimulatedClock()
        try:
            yield meter
        finally:
            meter.close()


def test_a_log_from_arming_to_reading():
    rows = (1e-3, 2e-3, OVER), (np.nan, -5e-9, UNDER)
    reading = [*states(DONE, DONE), PARAMETERS, *WATTS, *results(*rows), *STOPPING[:1]]
    # The codes left errors in the queue; nobody is to blame for them when the log is put away.
    drained = [(b"syst:err?\n", b'-231,"Data questionable"\n'), NO_ERROR]
    steps = [*arming(), *states(RUNNING, RUNNING), *states(DONE, RUNNING), *states(DONE, DONE), *reading[:-1]]
    with meter_on(*steps, *drained, *STOPPING) as meter:
        trace = meter.record(3, 1e-3)
        assert meter.clock.now() == pytest.approx(0.003 + 2 * 0.05)
    assert trace.power_w.shape == trace.valid.shape == (2, 3)
    assert trace.valid.tolist() == [[True, True, False], [False, True, False]]
    np.testing.assert_array_equal(np.isnan(trace.power_w), ~trace.valid)
    assert trace.power_w[0, :2] == pytest.approx([1e-3, 2e-3])
    assert trace.power_w.dtype == np.float64


def test_a_triggered_log_is_armed_and_read_later():
    reading = [*states(DONE, DONE), PARAMETERS, *WATTS, *results((1e-3,) * 3, (2e-3,) * 3), *STOPPING]
    with meter_on(
        *arming("sme"), *states(RUNNING, RUNNING), *reading, *arming("cme")[0:2], *arming("cme")[3:]
    ) as meter:
        meter.arm_log(3, 1e-3, trigger="sweep")
        with pytest.raises(DeviceError, match="logging goes on"):
            meter.read_log()
        assert meter.read_log().power_w.mean(axis=1) == pytest.approx([1e-3, 2e-3])
        meter.arm_log(3, 1e-3, trigger="start")


def test_what_would_end_a_log_is_refused_and_nothing_is_sent():
    with meter_on(*arming(), *STOPPING, (b"sens1:pow:rang 0.00000000E+00\n", None), NO_ERROR, RANGE_IS_0) as meter:
        meter.arm_log(3, 1e-3)
        for action in (
            meter.read_powers,
            lambda: meter.read_power(0),
            lambda: meter.initialise(1550e-9, 1e-3),
            lambda: meter.channels[0].wavelength(1550e-9),
            lambda: meter.channels[0].range_dbm(0.0),
            lambda: meter.channels[0].auto_range(True),
            lambda: meter.averaging_time(1e-3),
            lambda: meter.arm_log(3, 1e-3),
            meter.zero,
        ):
            with pytest.raises(DeviceError, match=r"meter: a log is armed.*stop_log\(\) first"):
                action()
        meter.stop_log()
        meter.channels[0].range_dbm(0.0)


RANGE_IS_0 = (b"sens1:pow:rang?\n", b"+0.00000000E+000\n")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0, 1e-3), "0 points"),
        ((1_000_001, 1e-3), "1000001 points"),
        ((10, 0.9e-6), "9e-07 s"),
        ((10, 11.0), "11.0 s"),
        ((10, float("nan")), "nan s"),
    ],
)
def test_impossible_logs(arguments, match):
    with meter_on() as meter:
        with pytest.raises(LimitError, match=match):
            meter.record(*arguments)
        with pytest.raises(LimitError, match="'what' is unknown"):
            meter.arm_log(10, 1e-3, trigger="what")


def test_parameters_that_were_not_taken():
    other = (b"sens1:func:par:logg?\n", b"+3,+2.00000000E-003\n")
    with meter_on(*WATTS, NO_ERROR, setting("ign"), NO_ERROR, other) as meter, pytest.raises(DeviceError, match="logg"):
        meter.arm_log(3, 1e-3)


def test_a_log_that_does_not_end_in_time_is_stopped():
    polls = [*states(RUNNING, DONE)] * 3
    with meter_on(*arming(), *polls, *STOPPING) as meter:
        with pytest.raises(DeviceError, match=r"within 0\.1 s"):
            meter.record(3, 1e-3, deadline_s=0.1)
        assert meter.clock.now() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("state", [b"NONE,PROGRESS", b"NONE,COMPLETE", b"MINMAX,PROGRESS"])
def test_a_log_that_somebody_stopped(state):
    with meter_on(*arming(), *states(DONE, state), *STOPPING) as meter:
        with pytest.raises(DeviceError, match=r"port 1 does not log.*somebody changed a setting"):
            meter.record(3, 1e-3)
        assert meter.clock.now() == pytest.approx(0.003)


@pytest.mark.parametrize("reply", [b"LOGGING_STABILITY\n", b"DONE,COMPLETE\n", b"NONE,\n", b"+1\n"])
def test_states_that_make_no_sense(reply):
    with meter_on((b"sens1:func:stat?\n", reply), IDN, IDN) as meter:
        with pytest.raises(ReplyError):
            meter.read_log()
        meter.get_idn()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (block(1e-3, 1e-3), ReplyError),
        (block(1e-3, 1e-3, 1e-3, 1e-3), ReplyError),
        (block(1e-3, 1e-3, 1e-3)[:-3], LinkTimeoutError),
        (block(1e-3, 1e-3, 1e-3) + b"1\n", ReplyError),
        (b"#2x2\n", ReplyError),
    ],
)
def test_bad_results_raise_and_the_log_can_be_read_again(reply, error):
    again = [IDN, *states(DONE, DONE), PARAMETERS, *WATTS, *results((1e-3,) * 3, (2e-3,) * 3), *DRAINING, *STOPPING]
    bad = [*states(DONE, DONE), PARAMETERS, *WATTS, (b"sens1:func:res?\n", reply)]
    with meter_on(*arming(), *bad, *again) as meter:
        meter.arm_log(3, 1e-3)
        with raises_in_time(error, meter):
            meter.read_log()
        assert meter.read_log().power_w[1] == pytest.approx([2e-3] * 3)


DRAINING = [NO_ERROR]


def test_results_in_dbm_are_refused():
    """Nobody says in the block which unit it has (D-32)."""
    dbm = (b"sens1:pow:unit?\n", b"+0\n")
    levels = [*states(DONE, DONE), PARAMETERS, *WATTS, *results((-11.2,) * 3, (-8.0,) * 3), dbm]
    with meter_on(*arming(), *states(DONE, DONE), PARAMETERS, dbm, *levels) as meter:
        meter.arm_log(3, 1e-3)
        for _ in range(2):  # switched before reading, and in the middle of it
            with pytest.raises(DeviceError, match="port 0 measures in dBm"):
                meter.read_log()


def test_readings_around_0_dbm_are_no_readings_in_watt():
    """1 mW is 0.00 dBm, which is no implausible number of watts: a negative one is, and one above 20 mW."""
    averaging = [(b"sens1:pow:atim?\n", b"+1.0E-3\n"), (b"sens2:pow:atim?\n", b"+1.0E-3\n")]
    dbm = (b"sens1:pow:unit?\n", b"+0\n")
    for levels in ((-0.02, 0.01), (0.01, 0.03)):
        steps = [*WATTS, *averaging, (b"read:pow:all?\n", block(*levels)), dbm]
        with meter_on(*steps) as meter, pytest.raises(DeviceError, match="dBm"):
            meter.read_powers()


def test_another_unit_than_watt_and_dbm_is_refused():
    """A mode that nobody knows here, such as volts, is neither of the two units (D-34)."""
    with meter_on((b"sens1:pow:unit?\n", b"+2\n"), IDN, IDN) as meter:
        with pytest.raises(ReplyError):
            meter.read_powers()
        meter.get_idn()


def test_zeroing():
    zeroing = [NO_ERROR, (b"sens1:corr:coll:zero:all\n*opc?\n", b"1\n"), NO_ERROR]
    good = [(b"sens1:corr:coll:zero?\n", b"+0\n"), (b"sens2:corr:coll:zero?\n", b"+0\n")]
    bad = [good[0], (b"sens2:corr:coll:zero?\n", b"+1\n")]
    with meter_on(NO_ERROR, *zeroing, *good, *zeroing, *bad) as meter:
        meter.zero()
        with pytest.raises(DeviceError, match=r"zeroing failed on ports \[1\]; darken"):
            meter.zero()


def test_ranges():
    steps = [
        NO_ERROR,
        (b"sens2:pow:rang -2.00000000E+01\n", None),
        NO_ERROR,
        (b"sens2:pow:rang?\n", b"-2.00000000E+001\n"),
        (b"sens2:pow:rang:auto 1\n", None),
        NO_ERROR,
        (b"sens2:pow:rang:auto?\n", b"+1\n"),
        (b"sens2:pow:rang -1.00000000E+01\n", None),
        NO_ERROR,
        (b"sens2:pow:rang?\n", b"-2.00000000E+001\n"),
        (b"sens2:pow:rang:auto 0\n", None),
        NO_ERROR,
        (b"sens2:pow:rang:auto?\n", b"+1\n"),
    ]
    with meter_on(*steps) as meter:
        port = meter.channels[1]
        port.range_dbm(-20.0)
        assert port.auto_range.cache.get() is False
        port.auto_range(True)
        with pytest.raises(DeviceError, match="-20 although -10"):
            port.range_dbm(-10.0)
        with pytest.raises(DeviceError, match="is 1 although 0"):
            port.auto_range(False)
        with pytest.raises(ValueError, match="range_dbm"):
            port.range_dbm(-25.0)


def test_models():
    with meter_on(IDN, model=None) as meter:
        assert meter.IDN()["model"] == "N7745C"
    with pytest.raises(ConfigurationError, match="N7745C has 8"):
        KeysightN7745A("meter", "TCPIP0::127.0.0.1::1::SOCKET", ports=4, model="N7745C")
    with pytest.raises(ConfigurationError, match="'N9999' is unknown"):
        KeysightN7745A("meter", "TCPIP0::127.0.0.1::1::SOCKET", model="N9999")
    with ScriptServer(IDN) as server, pytest.raises(IdentityError, match="N7745A"):
        KeysightN7745A("meter", server.visa_address, ports=8, model="N7745A", timeout=5.0)


@pytest.fixture(params=[case for case in CASES if case.id.startswith("keysight_n774")], ids=lambda case: case.id)
def bench(request):
    with simulated(request.param) as (running, chip, clock):
        chip.set_laser(4e-3, 1550e-9)
        with opened(request.param, running.addresses["device"], clock) as meter:
            meter.initialise(1550e-9, 10e-3)
            yield meter, chip, clock


def truth(chip):
    return chip.parameters.gain * chip.detector_powers() + chip.parameters.dark_w


def test_log_of_light_that_changes(bench):
    meter, chip, clock = bench
    for port in meter.channels:
        port.range_dbm(0.0)
    before, start = truth(chip), clock.now()
    chip.set_laser(8e-3, 1550e-9, at_s=start + 0.5005)
    trace = meter.record(1000, 1e-3)
    assert clock.now() - start == pytest.approx(1.0, abs=0.1)
    after = truth(chip)
    assert trace.power_w.shape == (meter.port_count, 1000)
    np.testing.assert_allclose(trace.power_w[:4, :500].mean(axis=1), before, rtol=0.01)
    np.testing.assert_allclose(trace.power_w[:4, 500:].mean(axis=1), after, rtol=0.01)
    assert meter.read_powers().power_w[:4] == pytest.approx(after, rel=0.05)


def test_triggered_log_on_the_simulator(bench):
    meter, chip, clock = bench
    for port in meter.channels:
        port.range_dbm(0.0)
    meter.arm_log(3, 1e-3, trigger="sweep")
    with pytest.raises(DeviceError, match="check the trigger"):
        meter.wait_logged(1.0)
    expected = []
    for power in (2e-3, 4e-3, 6e-3):
        chip.set_laser(power, 1550e-9)
        expected.append(truth(chip))
        meter.write_raw("trig 1")  # as the laser does at each step of its sweep
        meter.get_idn()  # the meter has heard it
        clock.sleep(1e-3)
    meter.wait_logged(1.0)
    np.testing.assert_allclose(meter.read_log().power_w[:4].T, expected, rtol=0.2)
    with pytest.raises(DeviceError, match="nobody armed it"):
        meter.read_log()


def test_range_too_low_is_flagged_and_the_next_setting_is_not_blamed(bench):
    meter, _, _ = bench
    meter.channels[0].range_dbm(-30.0)
    reading = meter.read_powers()
    assert not reading.valid[0]
    assert reading.valid[1]
    assert np.isnan(meter.channels[0].power())
    assert not meter.record(10, 1e-3).valid[0].any()
    meter.channels[0].range_dbm(0.0)
    assert meter.read_powers().valid.all()


def test_zeroing_on_the_simulator(bench):
    meter, chip, _ = bench
    with pytest.raises(DeviceError, match="zeroing failed on ports"):
        meter.zero()
    chip.set_laser(0.0, 1550e-9)
    for port in meter.channels:
        port.range_dbm(-30.0)
    meter.averaging_time(10.0)

    def darkness():
        return np.abs(np.mean([meter.read_powers().power_w[:4] for _ in range(10)], axis=0)).max()

    before = darkness()
    meter.zero()
    assert darkness() < 0.5 * before


def test_two_clients_of_one_meter(bench):
    """A log of one client is not ended by what the other one reads."""
    meter, _, clock = bench
    meter.arm_log(100, 1e-3)
    clock.sleep(0.05)
    other = KeysightN7745A("other", meter.address, ports=meter.port_count)
    try:
        other.clock = clock
        assert other.channels[0].wavelength() == pytest.approx(1550e-9)
        assert other.read_powers().valid.all()
        meter.wait_logged(1.0)
        assert meter.read_log().valid.all()
    finally:
        other.close()
