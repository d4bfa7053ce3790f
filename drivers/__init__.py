"""QCoDeS drivers of the bench's instruments, and what the bench needs of any driver.

Constructing and connecting only ask. Limits are checked before anything moves, heaters are ramped, and closing brings
an instrument into its safe state if the session changed its outputs.
"""

from drivers._sweep_log import SweepLog
from drivers.cobrite import CobriteLaser
from drivers.dicon import DiConMemsSwitch
from drivers.keithley import Keithley2600
from drivers.keysight import KeysightN7745A
from drivers.keysight_laser import KeysightLaser
from drivers.nicslab import NicslabXPOW
from drivers.polatis import PolatisOXC
from drivers.protocols import HeaterBank, Laser, PowerMeter, PowerReading, PowerTrace, SimulatedAs, Switch
from drivers.qdevil import QDevilQDAC2
from drivers.qontrol import Qontrol, QontrolQ8iv
from drivers.santec import SantecTSL570
from drivers.santec_mpm import SantecMPM210H
from drivers.thorlabs import ThorlabsPM

__all__ = [
    "CobriteLaser",
    "DiConMemsSwitch",
    "HeaterBank",
    "Keithley2600",
    "KeysightLaser",
    "KeysightN7745A",
    "Laser",
    "NicslabXPOW",
    "PolatisOXC",
    "PowerMeter",
    "PowerReading",
    "PowerTrace",
    "QDevilQDAC2",
    "Qontrol",
    "QontrolQ8iv",
    "SantecMPM210H",
    "SantecTSL570",
    "SimulatedAs",
    "SweepLog",
    "Switch",
    "ThorlabsPM",
]
