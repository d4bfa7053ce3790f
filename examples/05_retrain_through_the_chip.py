"""Retrain a carry cell on a simulated bench whose heaters are set in steps of 8 bits, and read the symbols."""

from calibration import HeaterDac, RetrainingSettings, calibrate, retrain
from optinc_hw import Bench
from optinc_hw.bench import BenchTileRunner
from optinc_hw.onn import build_cell, tile
from optinc_hw.photonics import voltage_from_power

with Bench.simulated(ports=4, seed=1) as bench:
    bench.save_record(calibrate(bench))
    record = bench.require_record()
    law = record.resistance_ohm, record.resistance_beta_per_w
    full_scale_v = float(voltage_from_power(bench.max_power, *law).max())
    dac = HeaterDac.of_bench(bench, full_scale_v / 2**8)
    plan = tile(build_cell(4, slope=8.0), bench.layout.ports)
    found = retrain(
        plan, BenchTileRunner(bench), record.twin(), dac, RetrainingSettings(judged=60),
        max_power_w=bench.max_power,
    )  # fmt: skip
    print(found)
