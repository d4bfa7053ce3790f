"""Runs for the tests of journals: headers, and a bench whose noise depends only on what is asked and how often."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from calibration._journal import Journal
from calibration._journal_run import RunHeader
from optinc_hw.bench import DetectorReading, HeaterReading, read_description, write_bench_folder
from optinc_hw.bench.write import instrument_names
from optinc_hw.photonics import ChipModel, TwinParameters, power_from_voltage

OHM, BETA_PER_W = 1210.0, 1.5
RELATIVE_NOISE, FLOOR_W = 1e-3, 2e-9


def header_of(layout, **changes):
    """Header of a run."""
    heaters = len(layout.heaters)
    header = RunHeader(
        chip="test", layout=layout, seed=3, arguments={}, max_power_w=(0.1,) * heaters, max_total_power_w=1.0,
        nominal_efficiency=(157.0,) * heaters, software="optinc-hw 0", created_utc="2026-01-01T00:00:00+00:00",
        conditions={"laser_power_w": 0.01},
    )  # fmt: skip
    return replace(header, **changes)


def replay_of(layout):
    """A run without sweeps."""
    return Journal.replay(header_of(layout), [])


def true_twin(ports, seed, kind="homodyne"):
    """A chip that the fit can describe: offsets, spread, coupler errors, losses; no crosstalk."""
    rng = np.random.default_rng(seed)
    parts = {"inputs": "ports", "receivers": "power"} if kind == "mesh" else {}
    nominal = TwinParameters.nominal(ports, input_amplitude=0.03, lo_amplitude=0.02, **parts)
    return replace(
        nominal,
        offset=rng.uniform(0.0, 2.0 * np.pi, len(nominal.offset)),
        efficiency=nominal.efficiency * (1.0 + 0.02 * rng.standard_normal(len(nominal.offset))),
        mesh_eta=nominal.mesh_eta + 0.02 * rng.standard_normal(nominal.mesh_eta.shape),
        mzi_transmission=np.full_like(nominal.mzi_transmission, 0.98),
        gain=1.0 + 0.05 * rng.standard_normal(len(nominal.gain)),
    )


class CountingBench:
    """A bench without instruments.

    A reading's noise is drawn from the voltages, the light, and how often this setting was read in a row: what the
    bench answers to a sweep does not depend on what it was asked before, so a resumed run can be compared bit for bit.
    """

    def __init__(self, folder, ports, seed, kind="homodyne"):
        if not (Path(folder) / "chip.yaml").exists():
            shutil.rmtree(folder, ignore_errors=True)  # a kill can come while the folder is being written
            addresses = {name: f"simulated:{name}" for name in instrument_names(ports, kind)}
            write_bench_folder(folder, ports, addresses, kind=kind)
        self.description = read_description(folder)
        self.folder, self.layout = Path(folder), self.description.layout
        self.interlock = self.description.interlock
        self.max_voltage, self.max_power = self.interlock.max_voltage, self.interlock.max_power
        self.max_total_power = self.interlock.max_total_power
        self.readings, self.simulated_seed = 0, seed
        self._twin = true_twin(ports, seed, kind)
        self._model = ChipModel.from_parameters(self._twin)
        self._voltages, self._lit, self._repeats = np.zeros(len(self.layout.heaters)), False, 0
        self._port = 0 if kind == "mesh" else None

    def light(self, on):
        self._lit, self._repeats = on, 0

    def set_voltages(self, voltages):
        self.interlock.check(voltages)
        self._voltages, self._repeats = np.array(voltages), 0

    def settle(self):
        pass

    def measure(self, voltages, port=None):
        if port != self._port or not np.array_equal(voltages, self._voltages):
            self._port = port
            self.set_voltages(voltages)
        return self.read_detectors()

    def read_detectors(self):
        self.readings += 1
        self._repeats += 1
        asked = self._voltages.tobytes() + f"{self._lit} {self._port} {self._repeats}".encode()
        rng = np.random.default_rng(np.frombuffer(hashlib.sha256(asked).digest(), dtype=np.uint32))
        power = np.zeros(len(self.layout.detectors))
        if self._lit:
            heat = power_from_voltage(self._voltages, OHM, BETA_PER_W)
            ports = None if self._port is None else np.array([self._port])
            power = self._model.readings(self._twin, heat[None], ports)[0]
        noise = np.hypot(RELATIVE_NOISE * power, FLOOR_W) * rng.standard_normal(len(power))
        return DetectorReading(power + noise, np.ones(len(power), dtype=np.bool_))

    def read_heaters(self):
        heat = power_from_voltage(self._voltages, OHM, BETA_PER_W)
        current = np.divide(heat, self._voltages, out=np.zeros_like(heat), where=self._voltages > 0.0)
        return HeaterReading(self._voltages.copy(), current)
