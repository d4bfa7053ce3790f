"""Simulated instruments on one hidden chip, speaking their wire protocols over TCP and pseudo-terminals."""

from simulated_instruments._effects import HiddenEffects
from simulated_instruments._heater_trace import HeaterEvent, HeaterTrace, read_heater_trace
from simulated_instruments._kind import InstrumentSpec
from simulated_instruments._light_paths import SwitchPath
from simulated_instruments._parameters import HiddenParameters
from simulated_instruments._presets import PRESETS, Preset, coupler_mean
from simulated_instruments._wiring import BenchWiring
from simulated_instruments.bench import SimulatedBench, default_bench
from simulated_instruments.cobrite import SimulatedCobrite
from simulated_instruments.dicon_1xn import SimulatedDiCon1xN
from simulated_instruments.hidden_chip import HiddenChip
from simulated_instruments.keithley_2600 import SimulatedKeithley2600
from simulated_instruments.keysight_laser import SimulatedKeysightLaser
from simulated_instruments.keysight_n7745a import SimulatedKeysightN7745A
from simulated_instruments.nicslab_xpow import SimulatedNicslabXPOW
from simulated_instruments.polatis_oxc import SimulatedPolatisOXC
from simulated_instruments.qdevil_qdac2 import SimulatedQDevilQDAC2
from simulated_instruments.qontrol import SimulatedQontrol
from simulated_instruments.santec_mpm import SimulatedSantecMPM210H
from simulated_instruments.santec_tsl570 import SimulatedSantecTSL570
from simulated_instruments.thorlabs_pm import SimulatedThorlabsPM

__all__ = [
    "PRESETS",
    "BenchWiring",
    "HeaterEvent",
    "HeaterTrace",
    "HiddenChip",
    "HiddenEffects",
    "HiddenParameters",
    "InstrumentSpec",
    "Preset",
    "SimulatedBench",
    "SimulatedCobrite",
    "SimulatedDiCon1xN",
    "SimulatedKeithley2600",
    "SimulatedKeysightLaser",
    "SimulatedKeysightN7745A",
    "SimulatedNicslabXPOW",
    "SimulatedPolatisOXC",
    "SimulatedQDevilQDAC2",
    "SimulatedQontrol",
    "SimulatedSantecMPM210H",
    "SimulatedSantecTSL570",
    "SimulatedThorlabsPM",
    "SwitchPath",
    "coupler_mean",
    "default_bench",
    "read_heater_trace",
]
