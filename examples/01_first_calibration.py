"""Calibrate a simulated chip of 4 ports from readings alone, and check the result.

Usage: python 01_first_calibration.py [FOLDER]

FOLDER must not hold a bench yet; without it everything goes to a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

from calibration import calibrate, verify
from optinc_hw import Bench
from optinc_hw.bench import instrument_names, write_bench_folder

PORTS, SEED = 4, 1


def main(folder: Path) -> None:
    # The two files describe instruments, wiring and limits.  Addresses do not matter on a simulated bench.
    write_bench_folder(folder, PORTS, {name: f"simulated:{name}" for name in instrument_names(PORTS)})
    with Bench.open(folder, simulate=True, seed=SEED) as bench:
        print(f"{len(bench.layout.heaters)} heaters, {len(bench.layout.detectors)} photodiodes; calibrating ...")
        # Fewer settings than the default of 10 a heater: quicker, and a little less accurate.
        record = calibrate(bench, settings=150, held_out=40, data_file=folder / "calibration.nc")
        path = bench.save_record(record)
        check = verify(bench, record)

    quality = record.quality
    print(f"readings of all photodiodes: {quality.readings}")
    print(f"noise of a reading: {100 * quality.noise_relative:.2f} % and {1e9 * quality.noise_floor_w:.1f} nW")
    print(f"prediction error over noise, settings kept out of the fit: {quality.residual_over_noise:.2f}")
    print(f"the same on {check.settings} fresh settings: {check.residual_over_noise:.2f} (good: {check.good})")
    for name in ("mzi_0_0_theta", "mzi_0_0_phi", "lo"):
        entry = record.heaters[name]
        print(
            f"{name}: {entry.resistance_ohm:.1f} ohm, {1e3 * entry.p_pi_w:.3f} +- {1e3 * entry.p_pi_sigma_w:.3f} mW "
            f"for pi, {entry.offset_rad:+.3f} rad at zero power"
        )
    print(f"record: {path}")
    print(f"raw data: {folder / 'calibration.nc'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="optinc-example-")))
