"""Simulated instruments in a process of their own, so that their work does not count as the drivers'.

``python _instrument_server.py`` prints the addresses as one line of JSON and serves until its input closes. Time is
simulated: averaging and tuning take none.
"""

import json
import sys

from optinc_hw.clock import SimulatedClock
from simulated_instruments import BenchWiring, HiddenChip, InstrumentSpec, SimulatedBench

PORTS = 4
MODULES, METER_PORTS = 4, 8


def main() -> None:
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(0, PORTS, clock=clock)
    specs = (
        InstrumentSpec("qontrol", "qontrol_q8iv", MODULES),
        InstrumentSpec("qdac", "qdevil_qdac2", 24),
        InstrumentSpec("keithley", "keithley_2600", 2),
        InstrumentSpec("laser", "santec_tsl570"),
        InstrumentSpec("keysight", "keysight_n7745a", METER_PORTS),
        InstrumentSpec("thorlabs", "thorlabs_pm"),
        InstrumentSpec("polatis", "polatis_oxc", 8),
        InstrumentSpec("dicon", "dicon_1xn", 8),
    )
    wiring = BenchWiring(
        heaters={name: ("qontrol", k) for k, name in enumerate(chip.layout.heaters)},
        detectors={name: ("keysight", k) for k, name in enumerate(chip.layout.detectors)},
        laser="laser",
    )
    with SimulatedBench(chip, specs, wiring, clock) as bench:
        print(json.dumps(bench.addresses), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
