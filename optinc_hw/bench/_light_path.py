"""Laser, switches and power meters of a bench, set up on first use."""

import numpy as np

from optinc_hw.bench._connect import Connected
from optinc_hw.bench._input_light import InputLight
from optinc_hw.bench._safe_state import Step
from optinc_hw.bench._switching import SwitchDrive
from optinc_hw.bench.description import BenchDescription
from optinc_hw.bench.readings import DetectorReading
from optinc_hw.units import dbm_to_watt, nm_to_m

_LASER_DEADLINE_S = 30.0


class LightPath:
    """Laser in, photodiodes out.

    Parameters
    ----------
    description
        Wavelength, power, averaging time, ways of the light, and readings that see every detector once.
    instruments
        Laser, power meters and switches.
    """

    def __init__(self, description: BenchDescription, instruments: Connected) -> None:
        self._chip = description.chip
        self._laser_name = instruments.laser_name
        self._laser = instruments.laser
        self._meters = instruments.meters
        self._switches = SwitchDrive(instruments.switches)
        self.inputs = InputLight(description.input_ways, description.chip.ports, self._switches, description.folder)
        """Which input port the light reaches."""
        self._passes = description.reading_passes
        self._laser_ready = False
        self._meters_ready = False
        self.driven = False
        """True once this session has commanded the laser."""
        self.on: bool | None = None
        """Whether light was let in last; None before the first command, and where one failed."""
        self.readings = 0
        """Number of readings so far."""

    def switch(self, on: bool) -> None:
        """Open or close the light; sets wavelength and power before the first light and after errors."""
        self.driven, self.on = True, None
        ready, self._laser_ready = self._laser_ready, False
        if on and not ready:
            self._laser.set_wavelength(nm_to_m(self._chip.laser.wavelength_nm))
            self._laser.set_power(dbm_to_watt(self._chip.laser.power_dbm))
            ready = True
        self._laser.set_light(on)
        if on:
            self._laser.wait_settled(_LASER_DEADLINE_S)
        self._laser_ready, self.on = ready, on

    def read(self) -> DetectorReading:
        """Read all photodiodes once; sets up the meters before the first one and after errors.

        The way of the light to the chosen input port is asked for, and made again if it does not stand any more.
        """
        ready, self._meters_ready = self._meters_ready, False
        if not ready:
            self._switches.forget()
            for meter in self._meters.values():
                meter.initialise(nm_to_m(self._chip.laser.wavelength_nm), self._chip.averaging_time_s)
        self.inputs.confirm()
        count = sum(len(elements) for one in self._passes for elements in one.elements.values())
        power, valid = np.empty(count), np.empty(count, dtype=np.bool_)
        for one in self._passes:
            self._switches.connect(one.routes)
            for name, elements in one.elements.items():
                reading = self._meters[name].read_powers()
                power[elements] = reading.power_w[one.ports[name]]
                valid[elements] = reading.valid[one.ports[name]]
        self._meters_ready = True
        self.readings += 1
        return DetectorReading(power, valid)

    def safe_steps(self) -> list[Step]:
        """One step: the laser's shutter closes."""
        return [(self._laser_name, self._close)]

    def _close(self) -> None:
        self._laser.make_safe()
        self.on = False
