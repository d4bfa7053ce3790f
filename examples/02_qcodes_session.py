"""Drive the simulated chip from a QCoDeS session: a station, a sweep of one heater, a dataset.

Usage: python 02_qcodes_session.py [FOLDER]

FOLDER gets bench files, a station file and the database; without it a temporary folder is used.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from qcodes.dataset import LinSweep, dond, initialise_or_create_database_at, load_or_create_experiment
from qcodes.station import Station

from calibration import fit_phase_curve
from optinc_hw.bench import instrument_names, write_bench_folder

PORTS, SEED = 4, 1

STATION = """\
instruments:
  chip:
    type: optinc_hw.bench.PhotonicChip
    init:
      folder: '{folder}'
      simulate: true            # remove this line and the next on a real bench
      seed: {seed}
"""


def main(folder: Path) -> None:
    write_bench_folder(folder / "bench", PORTS, {name: f"simulated:{name}" for name in instrument_names(PORTS)})
    station_file = folder / "session.yaml"
    station_file.write_text(STATION.format(folder=(folder / "bench").as_posix(), seed=SEED), encoding="utf-8")
    initialise_or_create_database_at(str(folder / "optinc.db"))
    load_or_create_experiment("first_light", sample_name="simulated_chip")

    station = Station(config_file=str(station_file), use_monitor=False)
    chip = station.load_instrument("chip")
    try:
        chip.light(True)
        # Some voltage everywhere, so that light reaches every photodiode.
        for heater in chip.heaters:
            heater.power(0.008)
        sweep = LinSweep(chip.mzi_1_1_theta.power, 0.0, 0.040, 21)
        dataset, _, _ = dond(sweep, chip.powers, do_plot=False, show_progress=False)
    finally:
        station.close_all_registered_instruments()  # ramps the heaters to 0 V and closes the shutter

    data = dataset.to_xarray_dataset()
    power, detected = data[sweep.param.register_name].to_numpy(), data["chip_powers"].to_numpy()
    fit = fit_phase_curve(power, detected)
    print(f"run {dataset.run_id}: {detected.shape[0]} points x {detected.shape[1]} photodiodes")
    print(f"largest swing: {1e6 * np.ptp(detected, axis=0).max():.1f} uW")
    print(f"mzi_1_1_theta: {1e3 * np.pi / fit.efficiency:.2f} mW for pi (good fit: {fit.good})")
    print(f"database: {folder / 'optinc.db'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="optinc-example-")))
