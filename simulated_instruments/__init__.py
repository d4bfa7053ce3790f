"""Simulated instruments on one hidden chip, speaking their wire protocols over TCP and pseudo-terminals."""

from simulated_instruments._effects import HiddenEffects
from simulated_instruments._kind import InstrumentSpec
from simulated_instruments._light_paths import SwitchPath
from simulated_instruments._parameters import HiddenParameters
from simulated_instruments._wiring import BenchWiring
from simulated_instruments.bench import SimulatedBench, default_bench
from simulated_instruments.dicon_1xn import SimulatedDiCon1xN
from simulated_instruments.hidden_chip import HiddenChip
from simulated_instruments.keysight_n7745a import SimulatedKeysightN7745A
from simulated_instruments.polatis_oxc import SimulatedPolatisOXC
from simulated_instruments.qontrol_q8iv import SimulatedQontrolQ8iv
from simulated_instruments.santec_tsl570 import SimulatedSantecTSL570

__all__ = [
    "BenchWiring",
    "HiddenChip",
    "HiddenEffects",
    "HiddenParameters",
    "InstrumentSpec",
    "SimulatedBench",
    "SimulatedDiCon1xN",
    "SimulatedKeysightN7745A",
    "SimulatedPolatisOXC",
    "SimulatedQontrolQ8iv",
    "SimulatedSantecTSL570",
    "SwitchPath",
    "default_bench",
]
