"""Simulated benches for the tests of calibration: whose chip a test may choose, and what it may judge them by."""

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

import simulated_instruments
from calibration import CalibrationRecord, calibrate
from optinc_hw.bench import Bench
from optinc_hw.photonics import ChipModel, voltage_from_power


@dataclass(frozen=True)
class Calibrated:
    """What a calibration of a simulated bench of 4 ports, seed 1, made; open that bench anew to use it."""

    record: CalibrationRecord
    data_file: Path
    progress: list

    @contextmanager
    def bench(self):
        """The same bench with the record in force (QCoDeS allows one instrument of a name in a process)."""
        with Bench.simulated(ports=4, seed=1) as bench:
            bench.save_record(self.record)
            yield bench


def calibrate_once(folder):
    """Calibrate the bench of `Calibrated`."""
    progress, data_file = [], folder / "run.nc"
    with Bench.simulated(ports=4, seed=1) as bench:
        record = calibrate(bench, data_file=data_file, progress=lambda *entry: progress.append(entry))
    return Calibrated(record, data_file, progress)


@contextmanager
def bench_of(chip):
    """An open simulated bench around a given hidden chip."""

    def given(seed, ports, *, mesh, stuck_rad, inputs, receivers, clock):
        assert (mesh, stuck_rad) == (chip.layout.mesh, {})
        assert (inputs, receivers) == (chip.layout.inputs, chip.layout.receivers)
        chip.clock = clock
        return chip

    with (
        patch.object(simulated_instruments.HiddenChip, "from_seed", given),
        Bench.simulated(ports=chip.layout.ports) as bench,
    ):
        yield bench


def take_settings(bench, record, count, repeats, seed):
    """Powers (count, H) and readings (count, repeats, 2n) at random settings, by the bench's public methods alone."""
    rng, layout = np.random.default_rng(seed), bench.layout
    period = 2.0 * np.pi / record.twin().efficiency
    powers, readings = [], []
    bench.light(on=True)
    for _ in range(count):
        power = np.minimum(rng.uniform(size=len(layout.heaters)) * period, bench.max_power)
        power *= min(1.0, 0.8 * bench.max_total_power / power.sum())
        bench.set_voltages(voltage_from_power(power, record.resistance_ohm, record.resistance_beta_per_w))
        bench.settle()
        found = [bench.read_detectors() for _ in range(repeats)]
        assert all(reading.valid.all() for reading in found)
        powers.append(power)
        readings.append([reading.power_w for reading in found])
    bench.light(on=False)
    bench.set_voltages(np.zeros(len(layout.heaters)))
    return np.array(powers), np.array(readings)


def error_over_noise_floor(record, powers, readings):
    """Rms error of predicted readings over the rms scatter of repeated readings; that scatter over the record's noise.

    The record's noise only weighs bright against dark readings; its size cancels.
    """
    twin = record.twin()
    predicted = ChipModel.from_parameters(twin).readings(twin, powers)[:, None, :]
    sigma = np.hypot(record.quality.noise_relative * predicted, record.quality.noise_floor_w)
    repeats = readings.shape[1]
    scatter = (readings - readings.mean(axis=1, keepdims=True)) / sigma * np.sqrt(repeats / (repeats - 1.0))
    floor = np.sqrt(np.mean(scatter**2))
    return np.sqrt(np.mean(((predicted - readings) / sigma) ** 2)) / floor, floor
