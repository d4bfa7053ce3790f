"""Logging with the Santec MPM-210H driver: byte-exact scripts, and the way through the simulated mainframe."""

import contextlib
import struct

import numpy as np
import pytest
from _scripted_link import raises_in_time
from driver_cases import CASES, opened, simulated
from test_drivers_santec_mpm import AUTO, AVERAGING, BRIGHT, BRIGHT_W, DBM, IDN, MILLIWATT, NO_ERROR, meter_on, setting

from drivers import SantecMPM210H
from optinc_hw.errors import DeviceError, LinkTimeoutError, ReplyError

CASE = next(case for case in CASES if case.id == "santec_mpm210h")


def block(*values):
    data = struct.pack(f"<{len(values)}f", *values)
    size = str(len(data)).encode()
    return b"#" + str(len(size)).encode() + size + data + b"\r"


def started(mode, trigger=0):
    return [
        *setting("TRIG", trigger, trigger),
        *setting("WMOD", mode, mode),
        (b"MEAS\r", None),
        NO_ERROR,
        state(b"0,0"),
    ]


def state(text):
    return (b"STAT?\r", text + b"\r")


def logged(values):
    return [
        (f"LOGG? {slot},{channel}\r".encode(), values(4 * slot + channel - 1))
        for slot in (0, 1)
        for channel in (1, 2, 3, 4)
    ]


ARMED = [NO_ERROR, *setting("AVG", "1.00", "1.00"), *setting("LOGN", 3, 3), *started("CONST1")]


def test_log_at_one_wavelength():
    carriage_return = struct.unpack("<f", b"\r\r\r\x38")[0]
    steps = [
        *ARMED,
        state(b"0,1"),
        state(b"0,2"),
        state(b"1,3"),
        state(b"1,3"),
        (b"WMOD?\r", b"CONST1\r"),
        (b"LEV?\r", b"2\r"),
        MILLIWATT,
        *logged(lambda port: block(0.1 * port, 1.05, carriage_return)),
        state(b"1,3"),  # once more before the next reading
        MILLIWATT,
        AUTO,
        *BRIGHT,
    ]
    with meter_on(*steps) as meter:
        meter.arm_log(3, 1e-3)
        meter.wait_logged(1.0)
        trace = meter.read_log()
        assert trace.power_w.shape == trace.valid.shape == (8, 3)
        assert trace.power_w[:, 0] == pytest.approx([1e-4 * port for port in range(8)])
        assert not trace.valid[:, 1].any()  # above 1 mW, the limit of range 2
        assert trace.power_w[:, 2] == pytest.approx([1e-3 * carriage_return] * 8)
        assert meter.read_powers().power_w == pytest.approx(BRIGHT_W)


def test_sweep_with_automatic_gain_in_dbm():
    steps = [
        NO_ERROR,
        *setting("WSET", "1540.000,1540.200,0.100", "1540.000,1540.200,0.100"),
        *setting("SPE", "10.000", "10.000"),
        *started("SWEEP2", 1),
        state(b"1,3"),
        (b"WMOD?\r", b"SWEEP2\r"),
        DBM,
        *logged(lambda port: block(-10.0, -200.0, 12.0)),
    ]
    with meter_on(*steps) as meter:
        meter.arm_sweep((1540e-9, 1540.2e-9, 0.1e-9), 10e-9, automatic_gain=True, external_trigger=True)
        trace = meter.read_log()
        assert trace.valid.tolist() == [[True, False, False]] * 8
        assert trace.power_w[:, 0] == pytest.approx([1e-4] * 8)


def test_grids_that_the_mainframe_did_not_take():
    steps = [NO_ERROR, *setting("WSET", "1540.000,1550.000,0.100", "1540.000,1550.000,0.200")]
    with meter_on(*steps) as meter, pytest.raises(DeviceError, match="WSET"):
        meter.arm_sweep((1540e-9, 1550e-9, 0.1e-9), 10e-9)
    steps = [*ARMED[:-6], (b"WMOD CONST1\r", None), NO_ERROR, (b"WMOD?\r", b"FREERUN\r")]
    with meter_on(*steps) as meter, pytest.raises(DeviceError, match="measuring mode is FREERUN"):
        meter.arm_log(3, 1e-3)


def test_a_log_that_does_not_end_in_time():
    steps = [*ARMED, *[state(b"0,1")] * 4, (b"STOP\r", None), NO_ERROR, state(b"-1,1"), state(b"-1,0")]
    with meter_on(*steps) as meter:
        meter.arm_log(3, 1e-3)
        with pytest.raises(DeviceError, match=r"only 1 points were logged within 0\.1 s"):
            meter.wait_logged(0.1)
        assert meter.clock.now() == pytest.approx(0.1)
        with pytest.raises(DeviceError, match="logging, 1 points so far"):
            meter.read_powers()
        meter.stop_log()
        with pytest.raises(DeviceError, match="stopped after 1 points"):
            meter.wait_logged(0.1)
        with pytest.raises(DeviceError, match="nothing was logged"):
            meter.read_log()


@pytest.mark.parametrize("before", [b"1,3", b"-1,0", b"-1,3"])
def test_a_log_that_did_not_begin_is_not_taken_for_the_one_of_before(before):
    with meter_on(*ARMED[:-1], state(before)) as meter, pytest.raises(DeviceError, match="did not begin"):
        meter.arm_log(3, 1e-3)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (block(1.0, 2.0), ReplyError),
        (block(1.0, 2.0, 3.0, 4.0), ReplyError),
        (block(1.0, 2.0, 3.0)[:-5], LinkTimeoutError),
        (b"0.1,0.2,0.3\r", ReplyError),
    ],
)
def test_bad_logs_raise_and_the_next_reading_is_right(reply, error):
    steps = [state(b"1,3"), (b"WMOD?\r", b"CONST2\r"), MILLIWATT, (b"LOGG? 0,1\r", reply)]
    with meter_on(*steps, IDN, MILLIWATT, AUTO, AVERAGING, *BRIGHT) as meter:
        with raises_in_time(error, meter):
            meter.read_log()
        assert meter.read_powers().power_w == pytest.approx(BRIGHT_W)


# The simulated mainframe


@pytest.fixture
def live():
    with simulated(CASE) as (bench, chip, clock), opened(CASE, bench.addresses["device"], clock) as meter:
        chip.set_laser(4e-3, 1550e-9)
        yield meter, chip, bench.addresses["device"], clock


def shown(chip):
    return chip.parameters.gain * chip.detector_powers() + chip.parameters.dark_w


def test_the_way_through_the_simulated_mainframe(live):
    meter, chip, address, clock = live
    meter.initialise(1550e-9, 10e-3)
    before = clock.now()
    reading = meter.read_powers()
    assert clock.now() - before == pytest.approx(0.020)  # two modules
    assert reading.valid.all()
    assert reading.power_w[:4] == pytest.approx(shown(chip), rel=0.02)
    assert np.abs(reading.power_w[4:]).max() < 1e-9
    assert meter.channels[2].power() == pytest.approx(shown(chip)[2], rel=0.02)
    meter.auto_range(False)
    meter.range_level(5)
    assert not meter.read_powers().valid[:4].any()  # above 1 uW
    with contextlib.closing(SantecMPM210H("other", address, modules=2)) as other:
        other.write_raw("AUTO 1")
        other.write_raw("UNIT 0")
        other.get_idn()  # by then the mainframe has done both
        reading = meter.read_powers()
        assert reading.power_w[:4] == pytest.approx(shown(chip), rel=0.02)
        chip.set_laser(10.0, 1550e-9)
        assert not meter.read_powers().valid[:4].any()  # beyond the top range


def test_zeroing_on_the_simulated_mainframe(live):
    meter, chip, _, clock = live
    meter.initialise(1550e-9, 10e-3)
    before = clock.now()
    meter.zero()
    assert clock.now() - before == pytest.approx(3.5)
    assert np.abs(meter.read_powers().power_w[:4]).max() < 0.02 * shown(chip).max()


def test_logging_on_the_simulated_mainframe(live):
    meter, chip, _, clock = live
    meter.initialise(1550e-9, 10e-3)
    meter.arm_log(50, 10e-3, automatic_gain=True)
    with pytest.raises(DeviceError, match="logging"):
        meter.read_powers()
    before = clock.now()
    meter.wait_logged(1.0)
    assert clock.now() - before == pytest.approx(0.5, abs=0.06)
    trace = meter.read_log()
    assert trace.power_w.shape == (8, 50)
    assert trace.valid[:4].all()
    np.testing.assert_allclose(trace.power_w[:4].mean(axis=1), shown(chip), rtol=0.02)
    meter.arm_sweep((1540e-9, 1550e-9, 0.5e-9), 10e-9, automatic_gain=True)
    with pytest.raises(DeviceError, match="logged within"):
        meter.wait_logged(0.3)
    meter.stop_log()
    points = meter.log_state().points
    assert 5 <= points <= 8
    assert meter.read_log().power_w.shape == (8, points)
    assert meter.read_powers().valid[:4].all()
