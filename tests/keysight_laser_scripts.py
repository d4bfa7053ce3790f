"""Dialogs that tests of the Keysight laser driver share."""

import contextlib

from _scripted_link import ScriptServer

from drivers import KeysightLaser
from optinc_hw.clock import SimulatedClock

IDN = (b"*IDN?\n", b"Keysight Technologies,N7776C,DE00000011,V5.25\n")
RANGE = [(b"sour0:wav? min\n", b"+1.48000000E-006\n"), (b"sour0:wav? max\n", b"+1.62000000E-006\n")]
NO_ERROR = (b"syst:err?\n", b'+0,"No error"\n')
IN_DBM, IN_WATTS = (b"sour0:pow:unit?\n", b"+0\n"), (b"sour0:pow:unit?\n", b"+1\n")
POWER_1_MW = [IN_WATTS, (b"sour0:pow?\n", b"+1.00000000E-003\n")]
UNLOCKED, LOCKED = (b"lock?\n", b"+0\n"), (b"lock?\n", b"+1\n")
OFF = [(b"sour0:pow:stat 0\n", None), NO_ERROR, (b"sour0:pow:stat?\n", b"+0\n")]
STOPPED = (b"sour0:wav:swe?\n", b"+0\n")
CONSISTENT = (b"sour0:wav:swe:chec?\n", b"0,OK\n")


@contextlib.contextmanager
def laser_on(*steps, connect=(IDN, *RANGE), **kwargs):
    with ScriptServer(*connect, *steps) as server:
        laser = KeysightLaser("laser", server.visa_address, **{"timeout": 5.0} | kwargs)
        laser.clock = SimulatedClock()
        try:
            yield laser
        finally:
            laser.close()
