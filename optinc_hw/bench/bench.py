"""The bench: the chip and its instruments as one object that cannot be left unsafe."""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Unpack

from optinc_hw.bench._connect import Connected, outputs_at_start
from optinc_hw.bench._heater_drive import HeaterDrive
from optinc_hw.bench._leaving import OpenSession
from optinc_hw.bench._light_path import LightPath
from optinc_hw.bench._opening import open_instruments
from optinc_hw.bench._record_store import RecordStore
from optinc_hw.bench._safe_state import unsafe_error
from optinc_hw.bench._simulate import write_hidden_chip
from optinc_hw.bench.description import BenchDescription, read_description
from optinc_hw.bench.interlock import Interlock, real_vector
from optinc_hw.bench.readings import DetectorReading, HeaterReading
from optinc_hw.bench.write import BenchKind, DesignValues, instrument_names, write_bench_folder
from optinc_hw.clock import Clock
from optinc_hw.photonics.layout import ChipLayout

if TYPE_CHECKING:
    from qcodes.station import Station

    from optinc_hw.bench.record import CalibrationRecord


class Bench:
    """An open bench; made by `Bench.open` or `Bench.simulated`, used as a context manager.

    All arrays are in the order of ``layout.heaters`` (H) and ``layout.detectors`` (D).  Opening only asks: no
    output changes.  Leaving - normally, by exception, Ctrl-C, SIGTERM or a closed terminal - ramps all heaters that
    this session drove to 0 V and closes the laser's shutter, once, also when one instrument no longer answers.
    """

    def __init__(
        self, description: BenchDescription, instruments: Connected, clock: Clock, store: RecordStore,
        record: "CalibrationRecord | None", simulated_seed: int | None, stack: ExitStack,
    ) -> None:  # fmt: skip
        self._description = description
        self._instruments = instruments
        self._clock = clock
        self._store = store
        self._record = record
        self._simulated_seed = simulated_seed
        self._interlock = description.interlock.with_record(record)
        self._found_at_start = outputs_at_start(description, instruments.heaters)
        start = np.array([self._found_at_start.get(name, 0.0) for name in description.layout.heaters])
        self._heaters = HeaterDrive(
            instruments.heaters, description.heater_attachments, start, description.chip.ramp.step_v
        )
        self._light = LightPath(description, instruments)
        self._session = OpenSession(description.folder, self._heaters, self._light, stack)

    @classmethod
    def open(cls, folder: str | Path, simulate: bool = False, seed: int = 0) -> Self:
        """Connect the bench described in ``folder``; no output changes.

        Parameters
        ----------
        folder
            Folder with ``station.yaml`` and ``chip.yaml``.
        simulate
            Start simulated instruments and use their addresses instead of those in the file; the files stay as
            they are, and a calibration saved in such a session goes to a file of its own.
        seed
            Seed of the simulated chip.

        Raises
        ------
        ConfigurationError
            If the files are wrong (see `read_description`).
        LinkError, IdentityError
            If an instrument does not answer or is another one, or another process has this bench open.
        CalibrationError
            If the calibration record does not fit the chip.
        """
        description = read_description(folder)
        private = f"calibration_simulated_{seed}.json" if simulate else None
        store = RecordStore(description.folder, description.chip, private)
        return cls._open(description, store, seed if simulate else None, ExitStack())

    @classmethod
    def simulated(
        cls, ports: int = 8, seed: int = 0, *, kind: BenchKind = "homodyne",
        chip: Mapping[str, object] | str | None = None, **design: Unpack[DesignValues],
    ) -> Self:  # fmt: skip
        """Open a simulated bench with the default wiring in a temporary folder.

        Parameters
        ----------
        ports, seed
            Ports of the chip, 2 to 64, and seed of the hidden chip.
        kind
            ``"homodyne"``: OptINC's own chip; ``"mesh"``: a bare mesh.
        chip
            What the hidden chip is like: the content of a ``hidden_chip.yaml``, or the name of a preset.
        **design
            Design values that chip.yaml states, see `write_bench_folder`.

        Raises
        ------
        ConfigurationError
            If an argument is out of range, or the hidden chip is not possible.
        """
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="optinc-bench-"))) / "bench"
            addresses = {name: f"simulated:{name}" for name in instrument_names(ports, kind)}
            write_bench_folder(folder, ports, addresses, kind=kind, **design)
            description = read_description(folder)
            if chip is not None:
                write_hidden_chip(folder, description.layout, chip)
            store = RecordStore(description.folder, description.chip)
            return cls._open(description, store, seed, stack.pop_all())

    @classmethod
    def _open(
        cls, description: BenchDescription, store: RecordStore, simulated_seed: int | None, resources: ExitStack
    ) -> Self:
        with resources as stack:
            record = store.load()
            clock, instruments = open_instruments(description, simulated_seed, stack)
            return cls(description, instruments, clock, store, record, simulated_seed, stack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failures = self._session.leave()
        if failures and error is not None:
            error.add_note(str(unsafe_error(failures)))
        elif failures:
            raise unsafe_error(failures)

    def close(self) -> None:
        """Bring what this session drove into the safe state and disconnect; a second call does nothing.

        Raises
        ------
        InstrumentError
            If an instrument could not be made safe; all others were.
        """
        self._session.close()

    def make_safe(self) -> None:
        """Ramp every heater to 0 V and close the shutter, also what this session did not drive.

        Raises
        ------
        InstrumentError
            If an instrument could not be made safe; all others were.
        """
        self._session.make_safe()

    @property
    def folder(self) -> Path:
        """Folder of station.yaml and chip.yaml."""
        return self._description.folder

    @property
    def description(self) -> BenchDescription:
        """Content of both files, with the chip's nominal values."""
        return self._description

    @property
    def layout(self) -> ChipLayout:
        """Names and order of heaters and detectors."""
        return self._description.layout

    @property
    def simulated_seed(self) -> int | None:
        """Seed of the simulated chip; None on real instruments."""
        return self._simulated_seed

    @property
    def clock(self) -> Clock:
        """Clock of ramps and settling: real time, or the simulation's."""
        return self._clock

    @property
    def station(self) -> "Station":
        """The QCoDeS station; what moves heaters through it checks no total power, but `set_voltages` then follows."""
        return self._instruments.station

    @property
    def found_at_start(self) -> dict[str, float]:
        """Voltage (V) of each output that was not zero when the bench was opened, by heater name."""
        return dict(self._found_at_start)

    @property
    def interlock(self) -> Interlock:
        """Limits and resistance model in force; also converts powers to voltages."""
        return self._interlock

    @property
    def max_voltage(self) -> NDArray[np.float64]:
        """Voltage limit of each heater, float64 (H,), in V."""
        return self._interlock.max_voltage.copy()

    @property
    def max_current(self) -> NDArray[np.float64]:
        """Current limit of each heater, float64 (H,), in A."""
        return self._interlock.max_current.copy()

    @property
    def max_power(self) -> NDArray[np.float64]:
        """Power limit of each heater, float64 (H,), in W."""
        return self._interlock.max_power.copy()

    @property
    def max_total_power(self) -> float:
        """Limit of the summed heater power in W."""
        return self._interlock.max_total_power

    @property
    def voltages(self) -> NDArray[np.float64]:
        """Voltages last set, float64 (H,), in V; before the first setting those measured at the start."""
        with self._session.lock:
            return self._heaters.voltages

    @property
    def readings(self) -> int:
        """Number of `read_detectors` calls so far."""
        return self._light.readings

    @property
    def light_on(self) -> bool | None:
        """Whether `light` let light in last; None if this session has not commanded the laser, or a command failed."""
        return self._light.on

    @property
    def lit_port(self) -> int | None:
        """Input port that the laser's light can reach; None if it reaches none, if a switch failed, with modulators."""
        return self._light.inputs.lit

    @property
    def port_changes(self) -> int:
        """How often `light_port` or `measure` chose another input port."""
        return self._light.inputs.changes

    @property
    def record(self) -> "CalibrationRecord | None":
        """Calibration record in force, or None."""
        return self._record

    def require_record(self) -> "CalibrationRecord":
        """Return the calibration record in force.

        Raises
        ------
        CalibrationError
            If there is none, or it was made with another laser power or wavelength than chip.yaml asks for.
        """
        return self._store.require(self._record)

    def save_record(self, record: "CalibrationRecord") -> Path:
        """Write ``record`` beside chip.yaml, let chip.yaml name it, and put it in force.

        In a session opened with ``simulate=True`` the record gets a file of its own and chip.yaml is left alone: a real
        bench must never load the calibration of a simulated chip.

        Returns
        -------
        Path
            The record's file.

        Raises
        ------
        CalibrationError
            If the record is of another number of ports.
        ConfigurationError
            If a file cannot be written.
        """
        with self._session.lock:
            path = self._store.save(record)
            self._record, self._interlock = record, self._description.interlock.with_record(record)
            return path

    def set_voltages(self, voltages: NDArray[np.float64]) -> None:
        """Set all heaters; ramped, and only changed channels are sent.

        Parameters
        ----------
        voltages
            Target voltages, (H,), in V.

        Raises
        ------
        LimitError
            If a heater's or the chip's limit would be exceeded. Nothing was moved, unless a note says what was: that
            a heater is not as described, a driver may find out only on the way.
        InstrumentError
            If a driver failed part way; the interlock then counts the higher of old and new for its channels.
        """
        target = real_vector(voltages)
        with self._session.in_use():
            self._heaters.move(target, self._interlock)

    def set_voltage(self, heater: int, voltage: float) -> None:
        """Set one heater (position in the layout's order, from 0) in V; raises as `set_voltages`."""
        position = self._interlock.position(heater)
        with self._session.lock:  # read and set in one piece, so that threads do not undo one another's heaters
            target = self.voltages
            target[position] = voltage
            self.set_voltages(target)

    def settle(self) -> None:
        """Wait the chip's settling time on the bench's clock."""
        self._clock.sleep(self._description.chip.settling.settle_s)

    def read_detectors(self) -> DetectorReading:
        """Read all photodiodes once; the first call sets unit, wavelength and averaging time of the meters.

        Raises
        ------
        InstrumentError
            If a meter does not answer properly.
        """
        with self._session.in_use():
            return self._light.read()

    def read_heaters(self) -> HeaterReading:
        """Measure voltage and current of all heaters.

        Raises
        ------
        InstrumentError
            If a driver does not answer properly.
        """
        with self._session.in_use():
            return self._heaters.read(self._interlock)

    def light(self, on: bool) -> None:
        """Let light into the chip, or stop it; the first time the laser gets its wavelength and power.

        Raises
        ------
        InstrumentError
            If the laser does not answer, or does not settle in time.
        """
        with self._session.in_use():
            self._light.switch(on)

    def light_port(self, port: int | None) -> None:
        """Let the laser's light reach one input port and no other one, and wait until it does.

        Parameters
        ----------
        port
            Input port, counted from 0; None lets light reach no port. The laser itself is switched by `light`.

        Raises
        ------
        ConfigurationError
            If the chip has input modulators, or chip.yaml has no such way of the light.
        LimitError
            If the chip has no such port.
        InstrumentError
            If the switch does not answer, or stands otherwise afterwards.
        """
        with self._session.in_use():
            self._light.inputs.choose(port)

    def measure(self, voltages: NDArray[np.float64], port: int | None = None) -> DetectorReading:
        """Set all heaters, settle, and read all photodiodes, with no other thread in between.

        Parameters
        ----------
        voltages
            Target voltages, (H,), in V.
        port
            Input port to light first; None leaves the light as it is.

        Returns
        -------
        DetectorReading
            All photodiodes at this setting.

        Raises
        ------
        LimitError, ConfigurationError, InstrumentError
            As `set_voltages`, `light_port` and `read_detectors`.
        """
        target = real_vector(voltages)
        with self._session.in_use():
            if port is not None and port != self._light.inputs.lit:
                self._light.inputs.choose(port)
            self._heaters.move(target, self._interlock)
            self.settle()
            return self._light.read()
