"""Every driver of the package with the simulated instrument of its hardware: the cases of rules for all drivers."""

import re
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import drivers
from optinc_hw.clock import SimulatedClock
from simulated_instruments import BenchWiring, HiddenChip, InstrumentSpec, SimulatedBench

PORTS = 2
TSP_QUERY = re.compile(rb"\*IDN\?|print\([^=]*\)")


@dataclass(frozen=True)
class DriverCase:
    """One driver in one configuration.

    ``init`` are its arguments besides name and address, ``options`` what the simulated instrument must know of them,
    ``query`` the form of commands that change nothing, ``hislip`` whether it is reached over HiSLIP.
    """

    id: str
    driver: type
    role: str
    size: int = 1
    init: Mapping = field(default_factory=dict)
    options: Mapping = field(default_factory=dict)
    query: re.Pattern = re.compile(rb"[^;]*\?[^;]*(;[^;]*\?[^;]*)*")
    terminator: bytes = b"\n"
    hislip: bool = False


_TSL550, _TSL770 = {"model": "TSL-550"}, {"model": "TSL-770"}
CASES = (
    DriverCase("cobrite_dx", drivers.CobriteLaser, "laser", terminator=b";"),
    DriverCase(
        "cobrite_mx",
        drivers.CobriteLaser,
        "laser",
        init={"model": "MX", "port": [1, 3, 2]},
        options={"model": "MX", "port": "[1, 3, 2]"},
        terminator=b";",
    ),
    DriverCase("keithley_2600", drivers.Keithley2600, "heaters", 2, query=TSP_QUERY),
    DriverCase(
        "keithley_2601b",
        drivers.Keithley2600,
        "heaters",
        init={"channels": 1, "model": "2601B"},
        options={"model": "2601B"},
        query=TSP_QUERY,
    ),
    DriverCase("nicslab_counts", drivers.NicslabXPOW, "heaters", 8, {"channels": 8, "dialect": "counts"}),
    DriverCase(
        "nicslab_units",
        drivers.NicslabXPOW,
        "heaters",
        8,
        {"channels": 8, "dialect": "units"},
        {"dialect": "units"},
    ),
    DriverCase("qdevil_qdac2", drivers.QDevilQDAC2, "heaters", 4, {"channels": 4}),
    DriverCase("qontrol_q8iv", drivers.QontrolQ8iv, "heaters", 2, {"modules": 2}),
    DriverCase(
        "qontrol_q8bi_binary",
        drivers.Qontrol,
        "heaters",
        init={"modules": 1, "module_type": "Q8bi", "binary": True},
        options={"module_type": "Q8bi"},
    ),
    DriverCase("santec_tsl570", drivers.SantecTSL570, "laser", terminator=b"\r"),
    DriverCase("santec_tsl550", drivers.SantecTSL570, "laser", 1, _TSL550, _TSL550, terminator=b"\r"),
    DriverCase("santec_tsl770", drivers.SantecTSL570, "laser", 1, _TSL770, _TSL770, terminator=b"\r"),
    DriverCase("keysight_8164b", drivers.KeysightLaser, "laser", init={"model": "8164B"}, options={"model": "8164B"}),
    DriverCase("keysight_n7776c", drivers.KeysightLaser, "laser"),
    DriverCase("keysight_n7745a", drivers.KeysightN7745A, "meter", 4, {"ports": 4}),
    DriverCase(
        "keysight_n7745c", drivers.KeysightN7745A, "meter", 8, {"ports": 8, "model": "N7745C"}, {"model": "N7745C"}
    ),
    DriverCase(
        "keysight_n7744a_hislip",
        drivers.KeysightN7745A,
        "meter",
        4,
        {"ports": 4, "model": "N7744A"},
        {"model": "N7744A"},
        hislip=True,
    ),
    DriverCase("polatis_oxc", drivers.PolatisOXC, "switch", 4, {"ports": 4}),
    DriverCase("dicon_1xn", drivers.DiConMemsSwitch, "switch", 4, {"channels": 4}, terminator=b"\r"),
    DriverCase("thorlabs_pm100d", drivers.ThorlabsPM, "meter", init={"model": "PM100D"}, options={"model": "PM100D"}),
    DriverCase("thorlabs_pm101", drivers.ThorlabsPM, "meter", init={"model": "PM101"}, options={"model": "PM101"}),
    DriverCase("thorlabs_pm400", drivers.ThorlabsPM, "meter", init={"model": "PM400"}, options={"model": "PM400"}),
    DriverCase("santec_mpm210h", drivers.SantecMPM210H, "meter", 2, {"modules": 2}, terminator=b"\r"),
)


@contextmanager
def simulated(case, clock=None, seed=3):
    """Serve the instrument of a case, wired to a chip of 2 ports; yields the bench, the chip and the clock.

    The instrument is called ``device``; a bench needs a laser, which is ``laser`` where the case is none.
    """
    clock = SimulatedClock() if clock is None else clock
    chip = HiddenChip.from_seed(seed, PORTS, clock=clock)
    kind = case.driver.simulated_as
    device = InstrumentSpec("device", kind.kind, case.size, case.options)
    specs = (device,) if case.role == "laser" else (device, InstrumentSpec("laser", "santec_tsl570"))
    channels = case.size * kind.channels_per_unit
    wiring = BenchWiring(
        heaters=dict(_places(chip.layout.heaters, channels)) if case.role == "heaters" else {},
        detectors=dict(_places(chip.layout.detectors, channels)) if case.role == "meter" else {},
        laser=specs[-1].name,
    )
    with SimulatedBench(chip, specs, wiring, clock, hislip=("device",) if case.hislip else ()) as bench:
        yield bench, chip, clock


def _places(names, channels):
    return [(name, ("device", k)) for k, name in enumerate(names[:channels])]


@contextmanager
def opened(case, address, clock, name="device"):
    """Open the driver of a case on an address; closes it at the end."""
    instrument = case.driver(name, address, **case.init)
    instrument.clock = clock
    try:
        yield instrument
    finally:
        instrument.close()


def all_parameters(instrument):
    """Every parameter of an instrument and of its channels."""
    yield from instrument.parameters.values()
    for module in instrument.submodules.values():
        for part in module if hasattr(module, "__iter__") else (module,):
            yield from part.parameters.values()
