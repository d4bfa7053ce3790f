"""Simulated benches of a 2-port chip, one for each family of heater sources, with every voltage on a heater noted."""

from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from mixed_benches import BENCHES, LAYOUT, PORTS, write_mixed_folder

import optinc_hw.bench._opening as opening
from optinc_hw.bench import Bench, write_bench_folder
from optinc_hw.bench.write import instrument_names
from simulated_instruments import HiddenChip, SimulatedBench

HEATERS = len(LAYOUT.heaters)
STEP_V, INTERVAL_S = 1.0, 1e-3
_ROUNDING_V = 0.01  # steps of the converters of all these sources

FAMILIES = {
    "qontrol": None,
    "qontrol_binary": None,
    "xpow": "nicslab_keysight_mpm",
    "qdac": "qdac_cobrite_thorlabs_dicon",
    "keithley": "keithley_8164b_polatis",
}
"""Folder of `mixed_benches` by family of heater sources; None for the default wiring."""


def write_folder(folder, family):
    """Write the bench folder of a family, with ramps of 1 V every 1 ms."""
    name = FAMILIES[family]
    if name is None:
        write_bench_folder(folder, PORTS, {name: f"nowhere:{name}" for name in instrument_names(PORTS)})
    else:
        write_mixed_folder(folder, name)
    if family == "qontrol_binary":
        station = folder / "station.yaml"
        station.write_text(station.read_text().replace("modules: 2", "modules: 2\n      binary: true"))
    chip = folder / "chip.yaml"
    text = chip.read_text().replace("step_v: 2.5", f"step_v: {STEP_V}")
    chip.write_text(text.replace("interval_s: 0.0002", f"interval_s: {INTERVAL_S}"))
    return folder


def bank_names(family):
    """Names of the heater sources of a family's bench."""
    name = FAMILIES[family]
    instruments = ["heaters_0"] if name is None else list(BENCHES[name][0])
    return [one for one in instruments if one.startswith(("heaters", "bank", "smu"))]


@dataclass
class Rig:
    """An open bench and what it must not know: its simulated instruments, its chip, and the voltages on its heaters."""

    bench: Bench
    simulated: SimulatedBench
    chip: HiddenChip
    trace: list = field(default_factory=list)

    def __post_init__(self):
        self.chip.watch_heaters(self._note)

    def _note(self, time_s, values):
        self.trace.append((time_s, dict(values), self.total_power()))

    @property
    def faults(self):
        return self.simulated.faults

    def volts(self):
        """Voltages on the heaters in V."""
        return np.array([self.chip.heater_voltage(k) for k in range(HEATERS)])

    def total_power(self):
        """Electrical power of all heaters in W."""
        return float(self.volts() @ self.chip.heater_currents())

    def powers(self):
        """Total power in W after each change."""
        return [power for _, _, power in self.trace]

    def jumps(self, start=(), *, restarted=False):
        """Moves of a heater that are too large or too early, but for the fall to 0 V where a source has ``restarted``.

        ``start`` has the voltages in V that heaters had at first, where that was not 0 V.
        """
        found = []
        last = dict.fromkeys(range(HEATERS), (-np.inf, 0.0))
        last |= {k: (-np.inf, volts) for k, volts in dict(start).items()}
        for time_s, values, _ in self.trace:
            for heater, volts in values.items():
                before_s, before = last[heater]
                if abs(volts - before) < 1e-3:  # a step of a converter
                    continue
                if restarted and volts == 0.0:
                    last[heater] = -np.inf, volts
                    continue
                if abs(volts - before) > STEP_V + _ROUNDING_V:
                    found.append(f"heater {heater}: {before:.3f} V to {volts:.3f} V at {time_s:.4f} s")
                if time_s - before_s < INTERVAL_S * (1.0 - 1e-9):
                    found.append(f"heater {heater}: {before:.3f} V to {volts:.3f} V {time_s - before_s:.6f} s later")
                last[heater] = time_s, volts
        return found

    def is_dark(self):
        """Whether no light enters the chip."""
        return self.chip._light.at(self.chip.clock.now() + 10.0)[0] == 0.0


@contextmanager
def rig_of(folder, monkeypatch, *, left_on=None, timeout_s=0.5):
    """Open the bench of a folder on simulated instruments, with voltages ``left_on`` by heater; closes it."""
    rigs = []
    make_chip = HiddenChip.from_seed

    def chip_from_seed(*args, **kwargs):
        chip = make_chip(*args, **kwargs)
        chip.set_heater_voltages(left_on or {})
        return chip

    original = opening.start_simulation

    def start(*args, **options):
        simulated = original(*args, **options)
        rigs.append(simulated)
        return simulated

    with monkeypatch.context() as patched:
        patched.setattr(opening, "start_simulation", start)
        patched.setattr(HiddenChip, "from_seed", chip_from_seed)
        bench = Bench.open(folder, simulate=True)
    for name in bench.description.roles:
        bench.station.components[name].timeout(timeout_s)
    with bench:
        yield Rig(bench, rigs[0], rigs[0].faults._chip)
