"""Resistances of heaters of which nothing is known: raised only as far as what was read before allows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._session import LIMIT_SHARE, Array
from optinc_hw.bench import Bench, HeaterReading
from optinc_hw.errors import DeviceError, LimitError

LEAST_OHM = 1.0
"""Heaters begin at a voltage at which no resistance from this on takes more than its limits."""
READ_ERROR_A = 50e-6
"""Error of a current that is read, offset included; a fifth of the current limit where that is less."""
TOTAL_SHARE = 0.8
"""Part of the chip's total power limit that heaters which are read together use."""
GROWTH = 1.02
"""A heater that could be raised by less than this ratio has reached its limits."""
ATTEMPTS = 2
"""A heater is at its limit if its driver says so as often, all others at zero: an error of another cause passes."""


@dataclass(frozen=True)
class ResistanceReadings:
    """What was read of each heater at the highest voltage that it could be given.

    Parameters
    ----------
    voltage_v, current_a
        Readings (H,) in V and A; zero for heaters that were not driven.
    refused
        Heaters (H,) whose drivers ran into limits at a voltage that `LEAST_OHM` allows.
    """

    voltage_v: Array
    current_a: Array
    refused: NDArray[np.bool_]


def allowed_voltage(bench: Bench, least_ohm: Array) -> Array:
    """Return voltages (H,) in V at which heaters of at least these resistances (H,) in ohm keep all their limits."""
    power = LIMIT_SHARE * np.minimum(bench.max_power, TOTAL_SHARE * bench.max_total_power)
    return np.asarray(
        np.minimum(LIMIT_SHARE * bench.max_current * least_ohm, np.sqrt(power * least_ohm)).clip(max=bench.max_voltage)
    )


def read_resistances(bench: Bench, level_v: Array) -> ResistanceReadings:
    """Raise all heaters towards ``level_v`` (H,) in V, and read them; leaves them at zero.

    Every step goes as far as the least resistance that the reading before leaves possible allows, so that a shorted
    heater never takes more than its limits: it is not raised further.  Heaters of stuck phases are not driven.

    Raises
    ------
    LimitError, DeviceError
        If the drivers refuse every heater.
    InstrumentError
        If an instrument fails.
    """
    count = len(level_v)
    found = ResistanceReadings(np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.bool_))
    error_a = np.minimum(READ_ERROR_A, 0.2 * bench.max_current)
    least_ohm, reached = np.full(count, LEAST_OHM), np.zeros(count)
    active = np.flatnonzero(bench.layout.movable & (level_v > 0.0))
    while len(active):
        wanted = np.minimum(level_v, allowed_voltage(bench, least_ohm))
        active = active[wanted[active] > GROWTH * reached[active]]
        for members in _groups(bench, wanted, least_ohm, active):
            _read(bench, wanted, members, found)
        active = active[~found.refused[active]]
        reached[active] = wanted[active]
        least_ohm[active] = wanted[active] / (np.abs(found.current_a[active]) + error_a[active])
        active = active[reached[active] < level_v[active]]
    bench.set_voltages(np.zeros(count))
    return found


def _groups(bench: Bench, wanted: Array, least_ohm: Array, active: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Share heaters out so that each group keeps the limit of the total power."""
    setting = np.zeros(len(wanted))
    setting[active] = wanted[active]
    total = float(np.maximum(setting**2 / least_ohm, bench.interlock.power(setting)).sum())
    groups = max(1, int(np.ceil(total / (TOTAL_SHARE * bench.max_total_power))))
    return [active[group::groups] for group in range(min(groups, len(active)))]


def _read(bench: Bench, wanted: Array, members: NDArray[np.intp], found: ResistanceReadings) -> None:
    """Read a group of heaters, one by one if one of their drivers runs into a limit."""
    try:
        _keep(found, members, _at(bench, wanted, members))
    except (DeviceError, LimitError) as error:
        bench.set_voltages(np.zeros(len(wanted)))
        for k in members:
            _read_alone(bench, wanted, members[members == k], found)
        if found.refused[members].all() and len(members) > 1:
            raise error


def _read_alone(bench: Bench, wanted: Array, one: NDArray[np.intp], found: ResistanceReadings) -> None:
    for _ in range(ATTEMPTS):
        try:
            _keep(found, one, _at(bench, wanted, one))
        except (DeviceError, LimitError):
            bench.set_voltages(np.zeros(len(wanted)))
        else:
            return
    found.refused[one] = True


def _at(bench: Bench, wanted: Array, members: NDArray[np.intp]) -> HeaterReading:
    setting = np.zeros(len(wanted))
    setting[members] = wanted[members]
    bench.set_voltages(setting)
    bench.settle()
    return bench.read_heaters()


def _keep(found: ResistanceReadings, members: NDArray[np.intp], reading: HeaterReading) -> None:
    found.voltage_v[members], found.current_a[members] = reading.voltage_v[members], reading.current_a[members]
