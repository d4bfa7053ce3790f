"""The calibrated twin against its chip: 8 ports, five hidden chips, settings that no fit has seen.

What limits the twin is measured in `test_what_limits_the_twin`: losses that differ between the two arms of an MZI,
which the model lacks, and the errors of the measured heater currents, which bend the scale of the powers.  Heat from
far away and heat on bare waveguides are within the model's reach at the sizes that the default chip has.
"""

from dataclasses import replace

import pytest
from calibrated_benches import bench_of, error_over_noise_floor, take_settings

from calibration import calibrate
from optinc_hw.bench import Bench
from simulated_instruments import HiddenChip, HiddenEffects


@pytest.mark.parametrize("seed", range(5))
def test_the_twin_predicts_within_three_times_the_noise_floor(seed, record_property):
    with Bench.simulated(ports=8, seed=seed) as bench:
        record = calibrate(bench)
        powers, readings = take_settings(bench, record, count=100, repeats=3, seed=1000 + seed)
    ratio, floor = error_over_noise_floor(record, powers, readings)
    record_property("error_over_noise_floor", float(ratio))
    assert ratio < 3.0
    assert floor == pytest.approx(1.0, abs=0.05)
    assert record.quality.residual_over_noise == pytest.approx(ratio, rel=0.25)


def residual_of(effects, settings=None):
    with bench_of(HiddenChip.from_seed(1, 4, effects=effects)) as bench:
        return calibrate(bench, settings=settings).quality.residual_over_noise


def test_what_limits_the_twin(calibrated, monkeypatch):
    default = calibrated.record.quality.residual_over_noise
    assert 1.5 < default < 3.0
    local_heat = replace(HiddenEffects(), arm_loss_rms=0.0, crosstalk_length=0.2)
    for name in ("_CURRENT_OFFSET_A", "_CURRENT_NOISE_A", "_VOLTAGE_NOISE_V"):
        monkeypatch.setattr(f"simulated_instruments._qontrol_channels.{name}", 0.0)
    within_the_model = residual_of(local_heat)
    assert within_the_model < 0.8 * default
    assert residual_of(local_heat, settings=900) < 1.2
    assert residual_of(replace(HiddenEffects(), arm_loss_rms=0.002)) > 2.0 * within_the_model
