"""Sweeps of the Santec driver: byte-exact dialogues, logs as blocks, and what must not pass for the sweep asked for."""

import contextlib
import struct

import numpy as np
import pytest
from _scripted_link import ScriptServer
from hypothesis import given
from hypothesis import strategies as st

from drivers import SantecTSL570
from drivers._santec_wire import parse_power_log, parse_wavelength_log
from drivers._sweep_log import log_problem, points_of
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import DeviceError, LimitError, ReplyError

IDN = (b"*IDN?\r", b"SANTEC,TSL-570,21020001,0001.0000.0001\r")
NO_ERROR = (b":SYST:ERR?\r", b'0,"No error"\r')
LEGACY = (b":WAV?\r", b"1550.0000\r")
SCPI = (b":WAV?\r", b"+1.55000000E-006\r")
EMITS_1_MW = [(b":POW:ATT:AUT?\r", b"1\r"), (b":POW:UNIT?\r", b"0\r"), (b":POW?\r", b"0.00\r")]
STOPPED, RUNNING, WAITING, PREPARING = ((b":WAV:SWE?\r", reply) for reply in (b"0\r", b"1\r", b"3\r", b"4\r"))
CLOSE_SHUTTER = [(b":POW:SHUT 1\r", None), NO_ERROR, (b":POW:SHUT?\r", b"1\r")]
RANGE = [(b":WAV:SWE:RANG:MIN?\r", b"1480.0000\r"), (b":WAV:SWE:RANG:MAX?\r", b"1640.0000\r")]
SPEED = [NO_ERROR, (b":WAV:SWE:SPE 10\r", None), NO_ERROR]
SETTINGS = [
    (command, None)
    for command in (
        b":WAV:SWE:MOD 1\r", b":WAV:SWE:STAR 1550.0000\r", b":WAV:SWE:STOP 1550.4000\r", b":WAV:SWE:CYCL 1\r",
        b":TRIG:OUTP 3\r", b":TRIG:OUTP:SETT 0\r", b":TRIG:OUTP:STEP 0.1000\r", b":TRIG:INP:STAN 1\r",
    )
] + [NO_ERROR]  # fmt: skip
ARM = [STOPPED, *EMITS_1_MW, *SPEED, *RANGE, LEGACY, *SETTINGS]
START = [(b":WAV:SWE 1\r", None), NO_ERROR, PREPARING, WAITING]
SOFT = [(b":WAV:SWE:SOFT\r", None), NO_ERROR]
STAND_DOWN = [(b":TRIG:INP:STAN 0\r", None), NO_ERROR]
GIVE_UP = [(b":WAV:SWE 0\r", None)]
WAVELENGTHS_PM10 = (15500000, 15501001, 15502000, 15502999, 15504000)
LEVELS_DBM = (0.0, 3.0, -10.0, -200.0, float("nan"))


class HurriedClock(SimulatedClock):
    """Time that passes in steps of 20 s."""

    def sleep(self, seconds):
        super().sleep(max(20.0, seconds))


class InterruptedClock(SimulatedClock):
    """Somebody presses Ctrl-C during the first wait."""

    def sleep(self, seconds):
        raise KeyboardInterrupt


def block(data):
    size = str(len(data)).encode()
    return b"#" + str(len(size)).encode() + size + data


def setting(command):
    """Steps in which a setting is sent, its errors are asked for, and it is read back."""
    header, value = command.split()
    return [(command + b"\r", None), NO_ERROR, (header + b"?\r", value + b"\r")]


def log_of(wavelengths=WAVELENGTHS_PM10, levels=LEVELS_DBM, points=None):
    """Steps in which the log is read."""
    count = len(wavelengths) if points is None else points
    return [
        (b":READ:POIN?\r", str(count).encode() + b"\r"),
        (b":READ:DAT?\r", block(struct.pack(f"<{len(wavelengths)}i", *wavelengths)) + b"\r"),
        (b":READ:DAT:POW?\r", block(struct.pack(f"<{len(levels)}f", *levels)) + b"\r"),
    ]


@contextlib.contextmanager
def laser_on(*steps, idn=IDN, clock=None, **kwargs):
    with ScriptServer(idn, *steps) as server:
        laser = SantecTSL570("laser", server.visa_address, **{"timeout": 5.0} | kwargs)
        laser.clock = clock or SimulatedClock()
        try:
            yield laser
        finally:
            laser.close()


def test_a_sweep_is_set_up_armed_triggered_awaited_and_read():
    steps = [*ARM, *START, *SOFT, RUNNING, RUNNING, STOPPED, *STAND_DOWN, *log_of(), *CLOSE_SHUTTER]
    with laser_on(*steps) as laser:
        log = laser.sweep(1550e-9, 1550.4e-9, 10e-9, 0.1e-9)
        assert laser.clock.now() == pytest.approx(0.03)
    np.testing.assert_allclose(log.wavelength_m, np.array(WAVELENGTHS_PM10) * 1e-13, rtol=1e-12)
    np.testing.assert_allclose(log.power_w, [1e-3, 10**-2.7, 1e-4, np.nan, np.nan], rtol=1e-6)
    assert log.valid.tolist() == [True, True, True, False, False]


def test_a_sweep_in_metres():
    settings = [
        (command, None)
        for command in (
            b":WAV:SWE:MOD 1\r", b":WAV:SWE:STAR 1.5504000E-06\r", b":WAV:SWE:STOP 1.5500000E-06\r",
            b":WAV:SWE:CYCL 1\r", b":TRIG:OUTP 3\r", b":TRIG:OUTP:SETT 0\r", b":TRIG:OUTP:STEP 1.0000000E-10\r",
            b":TRIG:INP:STAN 1\r",
        )
    ]  # fmt: skip
    limits = [(b":WAV:SWE:RANG:MIN?\r", b"+1.48000000E-006\r"), (b":WAV:SWE:RANG:MAX?\r", b"+1.64000000E-006\r")]
    steps = [STOPPED, *EMITS_1_MW, *SPEED, *limits, SCPI, *settings, NO_ERROR, *START]
    steps += [*SOFT, STOPPED, *STAND_DOWN, *log_of(WAVELENGTHS_PM10[::-1]), *CLOSE_SHUTTER]
    with laser_on(*steps) as laser:
        laser.arm_sweep(1550.4e-9, 1550e-9, 10e-9, 0.1e-9)
        log = laser.finish_sweep()
    assert log.wavelength_m[0] == pytest.approx(1550.4e-9)


def test_a_sweep_that_others_trigger():
    steps = [*ARM, *START, WAITING, RUNNING, STOPPED, *STAND_DOWN, *log_of(), *CLOSE_SHUTTER]
    with laser_on(*steps) as laser:
        laser.arm_sweep(1550e-9, 1550.4e-9, 10e-9, 0.1e-9)
        assert len(laser.finish_sweep(trigger=False).power_w) == 5


def test_what_no_sweep_can_have_is_refused_before_anything_is_sent():
    with laser_on() as laser:
        for arguments in [
            (1550.0, 1560.0, 10e-9, 1e-10),
            (1550e-9, float("nan"), 10e-9, 1e-10),
            (1550e-9, 1550e-9, 10e-9, 1e-10),
            (1550e-9, 1560e-9, 10.0, 1e-10),
            (1550e-9, 1560e-9, 3e-9, 1e-10),
            (1550e-9, 1560e-9, 10e-9, 0.0),
            (1550e-9, 1560e-9, 10e-9, 1e-14),
            (1550e-9, 1560e-9, 10e-9, float("nan")),
            (1500e-9, 1600e-9, 10e-9, 1.9e-13),
        ]:
            with pytest.raises(LimitError, match=r"laser: .*Nothing was changed"):
                laser.sweep(*arguments)
        with pytest.raises(LimitError, match="no sweep is armed"):
            laser.finish_sweep()


def test_more_light_than_max_power_does_not_sweep():
    with laser_on(STOPPED, *EMITS_1_MW, max_power=0.5e-3) as laser, pytest.raises(LimitError, match=r"0\.0005 W"):
        laser.sweep(1550e-9, 1560e-9, 10e-9, 1e-10)


def test_the_range_at_the_speed_is_asked():
    steps = [STOPPED, *EMITS_1_MW, *SPEED, RANGE[0], (b":WAV:SWE:RANG:MAX?\r", b"1550.3000\r"), *CLOSE_SHUTTER]
    with laser_on(*steps) as laser, pytest.raises(LimitError, match=r"cannot go .* 1\.5503e-06 m"):
        laser.sweep(1550e-9, 1550.4e-9, 10e-9, 0.1e-9)


def test_the_tsl550_has_no_range_to_ask_and_speeds_in_between():
    idn = (b"*IDN?\r", b"SANTEC,TSL-550,15020001,0001.0000.0001\r")
    speed = [NO_ERROR, (b":WAV:SWE:SPE 33.3\r", None), NO_ERROR]
    steps = [STOPPED, *EMITS_1_MW, *speed, LEGACY, *SETTINGS, *START, *CLOSE_SHUTTER]
    with laser_on(*steps, idn=idn, model="TSL-550") as laser:
        laser.arm_sweep(1550e-9, 1550.4e-9, 33.3e-9, 0.1e-9)
        with pytest.raises(LimitError, match="TSL-550 has 5e-10 m/s to 1e-07 m/s"):
            laser.arm_sweep(1550e-9, 1550.4e-9, 200e-9, 0.1e-9)
        assert "command_set" not in laser.parameters


def test_a_running_sweep_is_left_alone():
    with laser_on(RUNNING) as laser, pytest.raises(DeviceError, match="running already"):
        laser.sweep(1550e-9, 1550.4e-9, 10e-9, 0.1e-9)


def test_a_start_that_was_lost_is_noticed():
    steps = [*ARM, (b":WAV:SWE 1\r", None), NO_ERROR, *[STOPPED] * 4, *GIVE_UP, *CLOSE_SHUTTER]
    message = "'waiting for trigger' within 60 s"
    with laser_on(*steps, clock=HurriedClock()) as laser, pytest.raises(DeviceError, match=message):
        laser.sweep(1550e-9, 1550.4e-9, 10e-9, 0.1e-9)


@pytest.mark.parametrize("moment", [[], [WAITING, *SOFT]])
def test_a_sweep_that_is_interrupted_is_stopped(moment):
    """Ctrl-C while it tunes to its start, and while it runs."""
    start = [(b":WAV:SWE 1\r", None), NO_ERROR]
    with laser_on(*ARM, *start, *moment, RUNNING, *GIVE_UP, *CLOSE_SHUTTER, clock=InterruptedClock()) as laser:
        with pytest.raises(KeyboardInterrupt):
            laser.sweep(1550e-9, 1550.4e-9, 10e-9, 0.1e-9)
        with pytest.raises(LimitError, match="no sweep is armed"):
            laser.finish_sweep()


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        (log_of((15500000, 15501000, 15502000, 15503000, 15515000)), "ends at 1.551500e-06 m"),
        (log_of((15480000, 15501000, 15502000, 15503000, 15504000)), "begins at 1.548000e-06 m"),
        (log_of((15500000, 15502000, 15501000, 15503000, 15504000)), "runs backwards after point 1"),
        (log_of(WAVELENGTHS_PM10[:3], LEVELS_DBM[:3]), "has 3 points, but 5 were expected"),
    ],
)
def test_a_log_of_another_sweep_is_an_error(log, problem):
    steps = [*ARM, *START, *SOFT, STOPPED, *STAND_DOWN, *log, *CLOSE_SHUTTER]
    with laser_on(*steps) as laser, pytest.raises(DeviceError, match=problem):
        laser.sweep(1550e-9, 1550.4e-9, 10e-9, 0.1e-9)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (block(struct.pack("<4i", *WAVELENGTHS_PM10[:4])) + b"\r", "16 bytes, but 5 points"),
        (block(struct.pack("<5f", *[1550.0] * 5)) + b"\r", "is no wavelength"),
        (block(struct.pack(">5i", *WAVELENGTHS_PM10)) + b"\r", "is no wavelength"),
        (b"15500000\r", "does not begin like"),
    ],
)
def test_blocks_that_are_no_log_are_refused_with_their_bytes(reply, problem):
    with (
        laser_on((b":READ:POIN?\r", b"5\r"), (b":READ:DAT?\r", reply)) as laser,
        pytest.raises(ReplyError, match=problem),
    ):
        laser.read_sweep_log()


@pytest.mark.parametrize("points", [b"0\r", b"500001\r"])
def test_an_empty_log_is_no_log(points):
    with laser_on((b":READ:POIN?\r", points)) as laser, pytest.raises(DeviceError, match="nothing was logged"):
        laser.read_sweep_log()


def test_sweeps_by_hand():
    steps = [NO_ERROR, *setting(b":WAV:SWE:MOD 2"), (b":WAV:SWE:MOD?\r", b"2\r"), LEGACY]
    steps += [(b":WAV:SWE:STEP 0.5000\r", None), NO_ERROR, *[(b":WAV:SWE:STEP?\r", b"+5.0000000E-010\r")] * 2]
    steps += [*setting(b":WAV:SWE:DWEL 1.5"), *setting(b":WAV:SWE:CYCL 7")]
    steps += [(b":WAV:SWE:SPE?\r", b"100\r"), (b":WAV:SWE:STAR?\r", b"1480.0000\r"), PREPARING]
    steps += [STOPPED, *EMITS_1_MW, (b":WAV:SWE:REP\r", None), NO_ERROR, (b":WAV:SWE:COUN?\r", b"12\r"), *SOFT]
    steps += [(b":WAV:SWE 0\r", None), (b":TRIG:INP:STAN 0\r", None), NO_ERROR, RUNNING, STOPPED, *CLOSE_SHUTTER]
    with laser_on(*steps) as laser:
        laser.sweep_mode("step_two_way")
        assert laser.sweep_mode() == "step_two_way"
        laser.sweep_step(0.5e-9)
        assert laser.sweep_step() == 5e-10
        laser.sweep_dwell(1.5)
        laser.sweep_cycles(7)
        assert laser.sweep_speed() == pytest.approx(100e-9)
        assert laser.sweep_start() == pytest.approx(1480e-9)
        assert laser.sweep_state() == "preparing"
        laser.start_sweep(repeat=True)
        assert laser.sweep_count() == 12
        laser.trigger_sweep()
        laser.stop_sweep()


@pytest.mark.parametrize("reply", [b"2\r", b"-1\r", b"5\r", b"1.0\r", b"running\r"])
def test_what_is_no_state_is_refused(reply):
    with laser_on((b":WAV:SWE?\r", reply)) as laser, pytest.raises(ReplyError):
        laser.sweep_state()


def test_triggers():
    steps = [NO_ERROR, *setting(b":TRIG:OUTP 2"), (b":TRIG:OUTP?\r", b"3\r"), *setting(b":TRIG:OUTP:SETT 1"), SCPI]
    steps += [*setting(b":TRIG:OUTP:STEP 2.0000000E-11"), *setting(b":TRIG:INP:EXT 1"), *setting(b":TRIG:INP:ACT 1")]
    steps += [*setting(b":TRIG:THR 0"), (b":TRIG:INP:STAN?\r", b"1\r")]
    with laser_on(*steps) as laser:
        laser.trigger_output("start")
        assert laser.trigger_output() == "step"
        laser.trigger_spacing("time")
        laser.trigger_step(20e-12)
        laser.trigger_input(True)
        laser.trigger_input_level("low")
        laser.trigger_through(False)
        assert laser.trigger_standby() is True


@given(st.binary(max_size=64), st.integers(0, 16))
def test_any_bytes_are_a_log_of_wavelengths_or_refused(data, points):
    try:
        wavelength_m = parse_wavelength_log(data, points)
    except ValueError:
        return
    assert wavelength_m.shape == (points,)
    assert np.all((wavelength_m >= 400e-9) & (wavelength_m <= 3000e-9))


@given(st.binary(max_size=64), st.integers(0, 16))
def test_any_bytes_are_powers_flags_or_refused(data, points):
    try:
        power_w = parse_power_log(data, points)
    except ValueError:
        assert len(data) != 4 * points
        return
    expected = np.frombuffer(data, "<f4")
    assert power_w.shape == (points,)
    np.testing.assert_array_equal(np.isfinite(power_w), np.abs(expected) <= 100.0)


@given(
    start=st.integers(15_000_000, 16_000_000),
    steps=st.integers(1, 300),
    step=st.integers(1, 3_000),
    direction=st.sampled_from([1, -1]),
    random=st.randoms(),
)
def test_true_logs_pass_and_logs_of_other_sweeps_do_not(start, steps, step, direction, random):
    grid = start + direction * step * np.arange(steps + 1)
    ends = start * 1e-13, grid[-1] * 1e-13, step * 1e-13
    noisy = np.array([value + random.randint(-step // 4, step // 4) for value in grid]) * 1e-13
    assert points_of(*ends) == len(grid)
    assert log_problem(noisy, *ends) is None
    assert log_problem(noisy + 12e-12 + 1.5 * ends[2], *ends) is not None
