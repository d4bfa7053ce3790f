"""The chip as a QCoDeS instrument: heater voltages and phases, detector powers and transfer matrix for ``dond``."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qcodes.instrument import ChannelList, Instrument, InstrumentChannel
from qcodes.parameters import Parameter, ParameterWithSetpoints
from qcodes.validators import Arrays, Bool, Ints, Numbers

from optinc_hw.bench.bench import Bench
from optinc_hw.bench.phases import PhaseDrive, measure_transfer_matrix
from optinc_hw.bench.record import CalibrationRecord
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
        self.phase: Parameter = self.add_parameter(
            "phase",
            label=f"{name} phase",
            unit="rad",
            get_cmd=lambda: float(parent.phase_drive().phases()[index]),
            set_cmd=(lambda value: parent.phase_drive().set({index: value})) if movable else False,
            vals=Numbers() if movable else None,
            snapshot_get=False,
            snapshot_value=False,
            docstring="Control the phase by the calibration in force, holding those of all other heaters; set modulo "
            "2 pi, got as the heat gives it. Needs a calibration.",
        )
        """Phase in rad, by the calibration."""

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
        self._phase_drive: tuple[CalibrationRecord | None, PhaseDrive | None] = (None, None)
        self._add_heater_arrays(len(layout.heaters))
        if layout.inputs == "modulators" and layout.receivers == "homodyne":
            self._add_transfer_matrix(layout.ports)
        if layout.inputs == "ports":
            self._add_lit_port(layout.ports)
        count = len(layout.detectors)
        order = " (all plus ports, then all minus ports)" if layout.receivers == "homodyne" else ""
        what = f"the photodiodes' positions{order}"
        self.port_index: Parameter = self._index_parameter("port_index", "Detector", count, what)
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

    def _add_heater_arrays(self, count: int) -> None:
        self.heater_index: Parameter = self._index_parameter("heater_index", "Heater", count, "the heaters' positions")
        """Setpoints of ``voltages`` and ``phases``."""
        self.voltages: ParameterWithSetpoints = self.add_parameter(
            "voltages",
            ParameterWithSetpoints,
            label="Heater voltage",
            unit="V",
            setpoints=(self.heater_index,),
            get_cmd=lambda: self.bench.voltages,
            set_cmd=self.bench.set_voltages,
            vals=Arrays(min_value=0.0, shape=(count,)),
            snapshot_value=False,
            docstring="Control the voltages of all heaters, in the layout's order.",
        )
        """Voltages of all heaters in V."""
        self.phases: ParameterWithSetpoints = self.add_parameter(
            "phases",
            ParameterWithSetpoints,
            label="Phase",
            unit="rad",
            setpoints=(self.heater_index,),
            get_cmd=lambda: self.phase_drive().phases(),
            set_cmd=lambda values: self.phase_drive().set(
                {k: float(values[k]) for k in np.flatnonzero(self.bench.layout.movable).tolist()}
            ),
            vals=Arrays(shape=(count,)),
            snapshot_get=False,
            snapshot_value=False,
            docstring="Control the phases of all heaters by the calibration in force; those of stuck heaters are not "
            "set. Needs a calibration.",
        )
        """Phases of all heaters in rad."""

    def _add_transfer_matrix(self, ports: int) -> None:
        self.output_port: Parameter = self._index_parameter("output_port", "Output", ports, "the receivers' positions")
        """First setpoints of ``transfer_matrix``."""
        self.input_port: Parameter = self._index_parameter("input_port", "Input", ports, "the inputs' positions")
        """Second setpoints of ``transfer_matrix``."""
        self.transfer_matrix: ParameterWithSetpoints = self.add_parameter(
            "transfer_matrix",
            ParameterWithSetpoints,
            label="Field transmission",
            unit="",
            setpoints=(self.output_port, self.input_port),
            get_cmd=lambda: measure_transfer_matrix(self.bench),
            vals=Arrays(shape=(ports, ports), valid_types=(np.complexfloating,)),
            snapshot_get=False,
            snapshot_value=False,
            docstring="Measure the complex matrix from mesh inputs (columns) to receivers (rows) with the input "
            "modulators and the local oscillator; 4 readings an input. Needs a calibration; switches the light on.",
        )
        """Complex matrix from mesh inputs to receivers."""

    def _add_lit_port(self, ports: int) -> None:
        self.lit_port: Parameter = self.add_parameter(
            "lit_port",
            label="Lit input port",
            get_cmd=lambda: -1 if self.bench.lit_port is None else self.bench.lit_port,
            set_cmd=lambda port: self.bench.light_port(None if port < 0 else int(port)),
            vals=Ints(-1, ports - 1),
            docstring="Control which input port the laser's light can reach; -1 is none.",
        )
        """Lit input port, of chips whose light enters one port at a time; -1 is none."""

    def _index_parameter(self, name: str, label: str, count: int, what: str) -> Parameter:
        index: Parameter = self.add_parameter(
            name,
            label=label,
            unit="",
            get_cmd=lambda: np.arange(count, dtype=np.float64),
            vals=Arrays(shape=(count,)),
            snapshot_value=False,
            docstring=f"Get {what}, counted from 0.",
        )
        return index

    def phase_drive(self) -> PhaseDrive:
        """Phases by the calibration in force.

        Raises
        ------
        CalibrationError
            If there is none.
        """
        record, drive = self._phase_drive
        if drive is None or record is not self.bench.record:
            drive = PhaseDrive(self.bench)
            self._phase_drive = self.bench.record, drive
        return drive

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
