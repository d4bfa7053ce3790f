"""Sweeps of the Keysight laser driver: byte-exact scripts, and whole sweeps on its simulated instruments."""

import math
import re
import struct

import numpy as np
import pytest
from driver_cases import CASES, opened, simulated
from keysight_laser_scripts import CONSISTENT, IDN, NO_ERROR, OFF, POWER_1_MW, STOPPED, laser_on

from drivers import KeysightLaser
from optinc_hw.errors import DeviceError, LimitError, ReplyError

ARM = [
    STOPPED, *POWER_1_MW, NO_ERROR,
    *[(b"sour0:wav:swe:" + command + b"\n", None) for command in (
        b"mode cont", b"star 1550.0000nm", b"stop 1550.0200nm", b"step 10.0pm", b"spe 40.000000nm/s", b"cycl 1",
        b"rep onew",
    )],
    (b"trig0:outp stf\n", None), (b"trig0:inp sws\n", None), (b"sour0:wav:swe:llog 1\n", None), NO_ERROR,
    CONSISTENT, (b"sour0:wav:swe:pmax? 1550.0000nm,1550.0200nm\n", b"+1.00000000E-002\n"), *POWER_1_MW,
]  # fmt: skip
START = [(b"sour0:wav:swe 1\n", None), NO_ERROR]
FINISH = [
    *[(b"sour0:wav:swe:flag?\n", flag) for flag in (b"+0\n", b"+1\n")],
    (b"sour0:wav:swe:soft\n", None), NO_ERROR, (b"sour0:wav:swe?\n", b"+1\n"), STOPPED,
    (b"trig0:inp ign\n", None), NO_ERROR,
]  # fmt: skip
SWEEP = (1550e-9, 1550.02e-9, 40e-9, 10e-12)
POINTS = (b"sour0:read:poin? llog\n", b"+3\n")


def log_block(*wavelengths):
    data = struct.pack(f"<{len(wavelengths)}d", *wavelengths)
    return (b"sour0:read:data? llog\n", b"#2" + str(len(data)).encode() + data + b"\n")


def test_a_sweep_is_checked_armed_triggered_and_read():
    block = log_block(1550e-9, 1550.0101e-9, 1550.0199e-9)
    with laser_on(*ARM, *START, *FINISH, POINTS, block, *OFF) as laser:
        log = laser.sweep(*SWEEP)
        np.testing.assert_array_equal(log.wavelength_m, [1550e-9, 1550.0101e-9, 1550.0199e-9])
        assert not log.valid.any()
        assert np.isnan(log.power_w).all()


@pytest.mark.parametrize(
    ("points", "block", "error"),
    [
        (POINTS, log_block(1550e-9, 1550.01e-9), ReplyError),
        (POINTS, log_block(1550.0, 1550.01, 1550.02), ReplyError),
        (POINTS, log_block(1550e-9, math.nan, 1550.02e-9), ReplyError),
        (POINTS, log_block(1540e-9, 1540.01e-9, 1540.02e-9), DeviceError),
        (POINTS, log_block(1550e-9, 1550.02e-9, 1550.01e-9), DeviceError),
        ((b"sour0:read:poin? llog\n", b"+0\n"), None, DeviceError),
    ],
)
def test_a_log_that_is_not_that_of_the_sweep_is_refused(points, block, error):
    rest = [points] if block is None else [points, block]
    after = [IDN, NO_ERROR] if error is ReplyError else []
    with laser_on(*ARM, *START, *FINISH, *rest, *after, *OFF) as laser, pytest.raises(error):
        laser.sweep(*SWEEP)


def test_a_sweep_that_the_laser_cannot_do_is_not_started():
    check = (b"sour0:wav:swe:chec?\n", b"371,TrigFreq too high\n")
    with (
        laser_on(*ARM[:-4], check, *OFF) as laser,
        pytest.raises(DeviceError, match="not started: triggers would come"),
    ):
        laser.sweep(*SWEEP)
    weak = (b"sour0:wav:swe:pmax? 1550.0000nm,1550.0200nm\n", b"+5.00000000E-004\n")
    with laser_on(*ARM[:-3], weak, *POWER_1_MW, *OFF) as laser, pytest.raises(LimitError, match=r"hold only 0\.0005 W"):
        laser.sweep(*SWEEP)
    running = (b"sour0:wav:swe?\n", b"+1\n")
    with laser_on(running) as laser, pytest.raises(DeviceError, match="running already"):
        laser.sweep(*SWEEP)


def test_an_error_in_a_sweep_stops_it():
    refused = [(b"sour0:wav:swe 1\n", None), (b"syst:err?\n", b'-221,"Settings conflict"\n'), NO_ERROR]
    with (
        laser_on(*ARM, *refused, (b"sour0:wav:swe 0\n", None), *OFF) as laser,
        pytest.raises(DeviceError, match="conflict"),
    ):
        laser.sweep(*SWEEP)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"0,OK\n", None),
        (b"368,x\n", "longer wavelength"),
        (b"+375,x\n", "trigger at each step"),
        (b"376,x\n", "only in continuous"),
        (b"381,x\n", "too long a wavelength"),
        (b"999,news\n", r"do not fit together \(999, news\)"),
    ],
)
def test_verdicts_on_sweeps_are_put_into_words(reply, words):
    with laser_on((b"sour0:wav:swe:chec?\n", reply)) as laser:
        problem = laser.sweep_problem()
        assert problem is None if words is None else re.search(words, problem)


@pytest.fixture(params=[case for case in CASES if case.driver is KeysightLaser], ids=lambda case: case.id)
def bench(request):
    with simulated(request.param) as (running, chip, clock):
        yield request.param, running, chip, clock


def test_light_and_sweeps_on_the_simulated_laser(bench):
    case, running, chip, clock = bench
    with opened(case, running.addresses["device"], clock) as laser:
        laser.set_wavelength(1552e-9)
        laser.set_power(2e-3)
        laser.set_light(True)
        laser.wait_settled(10.0)
        assert chip.detector_powers().sum() > 0.0
        log = laser.sweep(1550e-9, 1552e-9, 40e-9, 20e-12)
        np.testing.assert_allclose(log.wavelength_m, np.linspace(1550e-9, 1552e-9, 101), atol=1e-12)
        laser.make_safe()
        assert chip.detector_powers().sum() == 0.0
        laser.set_wavelength(1500e-9)
        with pytest.raises(DeviceError, match="within"):
            laser.wait_settled(0.01)


def test_sweeps_step_by_step_on_the_simulated_laser(bench):
    case, running, _, clock = bench
    with opened(case, running.addresses["device"], clock) as laser:
        laser.sweep_start(1550e-9)
        laser.sweep_stop(1551e-9)
        laser.sweep_step(0.5e-9)
        laser.sweep_mode("manual")
        laser.start_sweep()
        clock.sleep(1.0)
        laser.step_sweep()
        assert (laser.sweep_state(), laser.wavelength()) == ("running", pytest.approx(1550.5e-9))
        laser.step_sweep(back=True)
        assert laser.wavelength() == pytest.approx(1550e-9)
        laser.stop_sweep()
        laser.sweep_mode("stepped")
        laser.start_sweep()
        laser.pause_sweep()
        assert laser.sweep_state() == "paused"
        laser.resume_sweep()
        with pytest.raises(DeviceError, match="running already"):
            laser.start_sweep()


def test_over_hislip(bench):
    case, running, _, clock = bench
    with opened(case, running.open_hislip("device"), clock) as laser:
        laser.set_wavelength(1551e-9)
        laser.wait_settled(10.0)
        assert len(laser.sweep(1550e-9, 1550.5e-9, 40e-9, 1e-12).wavelength_m) == 501
