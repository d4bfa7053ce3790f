"""Use a driver of one's own on a bench: station.yaml names its class, nothing else changes.

Usage: python 04_custom_driver.py [FOLDER]

The driver is in lab_heaters.py.  It talks to a simulated voltage source over a socket; laser and power meters are
simulated too, with the drivers of this package.  FOLDER gets the bench files (default: a temporary folder).
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from optinc_hw import Bench
from optinc_hw.bench import check_bench, write_bench_folder
from optinc_hw.clock import WallClock
from optinc_hw.errors import LimitError
from simulated_instruments import HiddenChip, SimulatedBench, default_bench

PORTS, SEED = 2, 1


def main(folder: Path) -> None:
    instruments, wiring = default_bench(PORTS)
    clock = WallClock()
    chip = HiddenChip.from_seed(SEED, PORTS, clock=clock)
    with SimulatedBench(chip, instruments, wiring, clock) as simulated:
        write_bench_folder(folder, PORTS, simulated.addresses)
        station = folder / "station.yaml"
        text = station.read_text(encoding="utf-8").replace("drivers.QontrolQ8iv", "lab_heaters.LabHeaters")
        station.write_text(text.replace("modules: 2", "channels: 16"), encoding="utf-8")
        for row in check_bench(folder).instruments:
            print(f"{row.name}: {row.driver}, {row.role}, {row.used} channels in use")

        with Bench.open(folder) as bench:
            voltages = np.full(len(bench.layout.heaters), 3.0)
            bench.set_voltages(voltages)
            bench.settle()
            bench.light(on=True)
            reading, heaters = bench.read_detectors(), bench.read_heaters()
            print(f"heaters: {heaters.voltage_v.mean():.3f} V, {1e3 * heaters.current_a.mean():.3f} mA on average")
            print("photodiodes (uW):", np.round(1e6 * reading.power_w, 1))
            try:
                bench.set_voltages(voltages + 20.0)
            except LimitError as error:
                print(f"refused: {error}")
        left = max(chip.heater_voltage(k) for k in range(len(chip.layout.heaters)))
        print(f"after the session: at most {left:.4f} V on a heater")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="optinc-example-")))
