"""The chip as a QCoDeS instrument: heater voltages and detector powers as parameters for ``dond``."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qcodes.instrument import ChannelList, Instrument, InstrumentChannel
from qcodes.parameters import Parameter, ParameterWithSetpoints
from qcodes.validators import Arrays, Bool, Numbers

from optinc_hw.bench.bench import Bench
from optinc_hw.errors import ConfigurationError


class HeaterChannel(InstrumentChannel):
    """One heater of the chip.

    Setting voltage or power goes through the bench's interlock and ramp; a heater whose phase is stuck cannot be set.

    Parameters
    ----------
    parent
        The chip.
    name
        Name of the heater in the layout.
    bench
        The open bench.
    index
        Position of the heater in the layout's order.
    """

    def __init__(self, parent: "PhotonicChip", name: str, bench: Bench, index: int) -> None:
        super().__init__(parent, name)
        self._bench = bench
        self._index = index
        movable = bool(bench.layout.movable[index])
        self.voltage: Parameter = self.add_parameter(
            "voltage",
            label=f"{name} voltage",
            unit="V",
            get_cmd=self._get_voltage,
            set_cmd=self._set_voltage if movable else False,
            vals=Numbers(0.0, float(bench.max_voltage[index])) if movable else None,
            docstring="Control the heater's voltage; getting returns the value last set, without asking the driver.",
        )
        """Voltage last set, in V."""
        self.power: Parameter = self.add_parameter(
            "power",
            label=f"{name} power",
            unit="W",
            get_cmd=self._get_power,
            set_cmd=self._set_power if movable else False,
            vals=Numbers(0.0, float(bench.max_power[index])) if movable else None,
            docstring="Control the heater's electrical power, computed with the calibrated or nominal resistance.",
        )
        """Electrical power in W, computed from the voltage."""

    def _get_voltage(self) -> float:
        return float(self._bench.voltages[self._index])

    def _set_voltage(self, value: float) -> None:
        self._bench.set_voltage(self._index, value)

    def _get_power(self) -> float:
        return float(self._bench.interlock.power(self._bench.voltages)[self._index])

    def _set_power(self, value: float) -> None:
        interlock = self._bench.interlock
        powers = np.zeros(len(interlock.names))
        powers[self._index] = value
        self._set_voltage(float(interlock.voltage(powers)[self._index]))


class PhotonicChip(Instrument):
    """The chip of an open bench, or of a bench that this instrument opens and closes itself.

    Parameters
    ----------
    name
        QCoDeS name.
    bench
        An open bench; it stays open when this instrument closes.
    folder
        Bench folder to open instead; closing this instrument closes that bench, which makes the chip safe.
    simulate, seed
        As in `Bench.open`, for ``folder``.
    **kwargs
        ``metadata`` and ``label`` of `qcodes.instrument.Instrument`.

    Raises
    ------
    ConfigurationError
        If not exactly one of ``bench`` and ``folder`` is given, or the folder's files are wrong.
    """

    def __init__(
        self,
        name: str,
        *,
        bench: Bench | None = None,
        folder: str | Path | None = None,
        simulate: bool = False,
        seed: int = 0,
        **kwargs: Any,  # Any: passed through to QCoDeS
    ) -> None:
        if (bench is None) == (folder is None):
            raise ConfigurationError(
                f"PhotonicChip {name!r}: got {'both' if bench is not None else 'neither'} of bench and folder; give "
                f"an open Bench as bench=, or the path of a bench folder as folder="
            )
        super().__init__(name, **kwargs)
        self._owns_bench = bench is None
        self.bench: Bench = bench if bench is not None else Bench.open(str(folder), simulate=simulate, seed=seed)
        """The open bench."""
        layout = self.bench.layout
        heaters = ChannelList(self, "heaters", HeaterChannel, snapshotable=True)
        for index, heater in enumerate(layout.heaters):
            channel = HeaterChannel(self, heater, self.bench, index)
            heaters.append(channel)
            self.add_submodule(heater, channel)
        self.heaters: ChannelList[HeaterChannel] = heaters
        """All heaters in the layout's order."""
        self.add_submodule("heaters", heaters.to_channel_tuple())
        count = len(layout.detectors)
        self.port_index: Parameter = self.add_parameter(
            "port_index",
            label="Detector",
            unit="",
            get_cmd=lambda: np.arange(count, dtype=np.float64),
            vals=Arrays(shape=(count,)),
            snapshot_value=False,
            docstring="Get the positions of the photodiodes: all plus ports, then all minus ports.",
        )
        """Setpoints of ``powers``."""
        self.powers: ParameterWithSetpoints = self.add_parameter(
            "powers",
            ParameterWithSetpoints,
            label="Detected power",
            unit="W",
            setpoints=(self.port_index,),
            get_cmd=self._get_powers,
            vals=Arrays(shape=(count,)),
            snapshot_get=False,
            snapshot_value=False,
            docstring="Measure all photodiodes after the settling time; readings out of the meter's range are NaN.",
        )
        """Powers of all photodiodes in W."""
        self.light: Parameter = self.add_parameter(
            "light",
            label="Light",
            set_cmd=self.bench.light,
            vals=Bool(),
            docstring="Set whether the laser's light enters the chip.",
        )
        """Light on or off."""

    def get_idn(self) -> dict[str, str | None]:
        """Name of the chip from chip.yaml; a passive chip has no serial number or firmware of its own."""
        return {"vendor": "optinc-hw", "model": self.bench.description.chip.name, "serial": None, "firmware": None}

    def _get_powers(self) -> NDArray[np.float64]:
        self.bench.settle()
        reading = self.bench.read_detectors()
        return np.where(reading.valid, reading.power_w, np.nan)

    def close(self) -> None:
        """Remove the instrument from QCoDeS; a bench that it opened itself is made safe and closed.

        Raises
        ------
        InstrumentError
            If an instrument of such a bench could not be made safe; all others were.
        """
        try:
            if getattr(self, "_owns_bench", False) and hasattr(self, "bench"):
                self.bench.close()
        finally:
            super().close()
