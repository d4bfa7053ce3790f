"""The Thorlabs driver on the simulated meters of three models."""

import contextlib
import json

import numpy as np
import pytest
from driver_cases import CASES, opened, simulated

from drivers import ThorlabsPM
from optinc_hw.errors import DeviceError


@pytest.fixture(params=["pm100d", "pm101", "pm400"])
def live(request):
    case = next(case for case in CASES if case.id == f"thorlabs_{request.param}")
    with simulated(case) as (bench, chip, clock), opened(case, bench.addresses["device"], clock) as meter:
        chip.set_laser(4e-3, 1550e-9)
        yield meter, chip, bench.addresses["device"], clock


def shown(chip):
    return (chip.parameters.gain * chip.detector_powers() + chip.parameters.dark_w)[0]


def test_the_way_through_a_simulated_meter(live):
    meter, chip, _, clock = live
    meter.initialise(1550.12e-9, 0.3)
    before = clock.now()
    reading = meter.read_powers()
    assert clock.now() - before == pytest.approx(0.3)
    assert meter.averaging_time() == pytest.approx(0.3)
    assert reading.valid.tolist() == [True]
    assert reading.power_w[0] == pytest.approx(shown(chip), rel=0.01)
    assert meter.power_dbm() == pytest.approx(10 * np.log10(shown(chip) / 1e-3), abs=0.05)
    meter.set_range(1e-6)
    assert meter.power_range() == 5e-6
    assert not meter.read_powers().valid.any()
    meter.auto_range(True)
    meter.input_loss(10.0)
    assert meter.power() == pytest.approx(10.0 * shown(chip), rel=0.01)
    chip.set_laser(1.0, 1550e-9)
    assert not meter.read_powers().valid.any()  # beyond the sensor
    snapshot = meter.snapshot(update=True)
    assert snapshot == json.loads(json.dumps(snapshot, allow_nan=False))
    assert snapshot["parameters"]["sensor_identity"]["value"].startswith("S155C ")
    assert snapshot["parameters"]["zero_magnitude"]["unit"] == "A"


def test_modes_that_somebody_else_chose(live):
    meter, chip, address, _ = live
    meter.initialise(1550e-9, 0.01)
    with contextlib.closing(ThorlabsPM("other", address, timeout=5.0)) as other:
        other.write_raw("CONF:CURR")
        assert meter.power() == pytest.approx(shown(chip), rel=0.02)
        other.write_raw("SENS:POW:UNIT DBM")
        other.get_idn()  # by then the meter has done it
        with pytest.raises(DeviceError, match="'DBM' and not in W"):
            meter.read_powers()
        meter.initialise(1550e-9, 0.01)
        assert meter.power() == pytest.approx(shown(chip), rel=0.02)


def test_zeroing(live):
    meter, chip, _, clock = live
    meter.initialise(1550e-9, 0.01)
    chip.set_laser(1e-4, 1550e-9)
    meter.start_zeroing()
    with pytest.raises(DeviceError, match="zeroing; wait_zeroed"):
        meter.read_powers()
    with pytest.raises(DeviceError, match=r"zeroing has not ended within 0\.5 s"):
        meter.wait_zeroed(0.5)
    assert meter.power() == pytest.approx(shown(chip), rel=0.1)  # aborted
    before = clock.now()
    meter.zero()
    assert clock.now() - before == pytest.approx(1.0, abs=0.1)
    assert meter.zero_magnitude() == pytest.approx(shown(chip), rel=0.1)
    assert abs(meter.power()) < 0.1 * shown(chip)


def test_recording_on_the_models_that_can(live):
    meter, chip, _, clock = live
    meter.initialise(1550e-9, 0.01)
    if meter.get_idn()["model"] == "PM100D":
        with pytest.raises(DeviceError, match="Undefined header"):
            meter.record(100, 1e-3)
        return
    before = clock.now()
    trace = meter.record(100, 1e-3)
    assert clock.now() - before == pytest.approx(0.1, abs=0.06)
    assert trace.valid.all()
    assert trace.power_w.shape == (1, 100)
    assert trace.power_w.mean() == pytest.approx(shown(chip), rel=0.02)
    assert meter.power() == pytest.approx(shown(chip), rel=0.02)
