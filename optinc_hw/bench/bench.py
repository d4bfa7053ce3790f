"""The bench: the chip and its instruments as one object that cannot be left unsafe."""

import atexit
import os
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from optinc_hw.bench._connect import Connected, connect, outputs_at_start
from optinc_hw.bench._heater_drive import HeaterDrive
from optinc_hw.bench._light_path import LightPath
from optinc_hw.bench._lock import take_locks
from optinc_hw.bench._record_store import RecordStore
from optinc_hw.bench._safe_state import Step, TerminationHandler, deferred_signals, run_all, unsafe_error
from optinc_hw.bench._simulate import start_simulation
from optinc_hw.bench.description import BenchDescription, read_description
from optinc_hw.bench.interlock import Interlock, real_vector
from optinc_hw.bench.readings import DetectorReading, HeaterReading
from optinc_hw.bench.write import instrument_names, write_bench_folder
from optinc_hw.clock import Clock, SimulatedClock, WallClock
from optinc_hw.errors import InstrumentError
from optinc_hw.photonics.layout import ChipLayout

if TYPE_CHECKING:
    from qcodes.station import Station

    from optinc_hw.bench.record import CalibrationRecord


class Bench:
    """An open bench; made by `Bench.open` or `Bench.simulated`, used as a context manager.

    All arrays are in the order of ``layout.heaters`` (H) and ``layout.detectors`` (2n).  Opening only asks: no
    output changes.  Leaving - normally, by exception, Ctrl-C, SIGTERM or a closed terminal - ramps all heaters that
    this session drove to 0 V and closes the laser's shutter, once, also when one instrument no longer answers.
    """

    def __init__(
        self,
        description: BenchDescription,
        instruments: Connected,
        clock: Clock,
        store: RecordStore,
        record: "CalibrationRecord | None",
        stack: ExitStack,
    ) -> None:
        self._description = description
        self._instruments = instruments
        self._clock = clock
        self._store = store
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._closed = False
        self._record = record
        self._interlock = self._interlock_for(record)
        self._found_at_start = outputs_at_start(description, instruments.heaters)
        self._heaters = HeaterDrive(
            instruments.heaters,
            description.heater_attachments,
            np.array([self._found_at_start.get(name, 0.0) for name in description.layout.heaters]),
        )
        self._light = LightPath(description.chip, instruments, description.reading_passes)
        self._termination = TerminationHandler()
        self._termination.install()
        atexit.register(self.close)
        self._stack = stack.pop_all()

    @classmethod
    def open(cls, folder: str | Path, simulate: bool = False, seed: int = 0) -> Self:
        """Open the bench described in ``folder``.

        Parameters
        ----------
        folder
            Folder with ``station.yaml`` and ``chip.yaml``.
        simulate
            Start simulated instruments and use their addresses instead of those in the file; the files stay as
            they are, and a calibration saved in such a session goes to a file of its own.
        seed
            Seed of the simulated chip.

        Returns
        -------
        Bench
            Connected; no output was changed.

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
        return cls._open(description, store, simulate, seed, ExitStack())

    @classmethod
    def simulated(cls, ports: int = 8, seed: int = 0) -> Self:
        """Open a simulated bench with the default wiring in a temporary folder.

        Parameters
        ----------
        ports
            Ports of the chip, 2 to 64.
        seed
            Seed of the hidden chip.

        Raises
        ------
        ConfigurationError
            If ``ports`` is out of range.
        """
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="optinc-bench-"))) / "bench"
            addresses = {name: f"simulated:{name}" for name in instrument_names(ports)}
            write_bench_folder(folder, ports, addresses)
            description = read_description(folder)
            store = RecordStore(description.folder, description.chip)
            return cls._open(description, store, True, seed, stack.pop_all())

    @classmethod
    def _open(
        cls, description: BenchDescription, store: RecordStore, simulate: bool, seed: int, resources: ExitStack
    ) -> Self:
        with resources as stack:
            record = store.load()
            if simulate:
                clock: Clock = SimulatedClock()
                addresses = start_simulation(description, seed, stack, clock).addresses
                instruments = connect(description, clock, addresses, stack)
            else:
                clock = WallClock()
                take_locks(description, stack)
                instruments = connect(description, clock, None, stack)
            return cls(description, instruments, clock, store, record, stack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failures = self._shut_down()
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
        failures = self._shut_down()
        if failures:
            raise unsafe_error(failures)

    def _shut_down(self) -> list[str]:
        failures: list[str] = []
        if os.getpid() != self._process:  # a forked child must not move the parent's heaters
            return failures
        try:
            # Signals wait from before the lock on, for which another thread may let us wait.
            with deferred_signals(), self._lock:
                if not self._closed:
                    self._closed = True  # not before: a signal in between would leave the bench closed and unsafe
                    steps = self._safe_steps(self._heaters.driven, self._light.driven)
                    run_all([*steps, ("closing the instruments", self._stack.close)], failures)
        except BaseException as error:
            if failures:
                error.add_note(str(unsafe_error(failures)))
            raise
        finally:
            if self._closed:
                self._termination.restore()
                atexit.unregister(self.close)
        return failures

    def make_safe(self) -> None:
        """Ramp every heater to 0 V and close the shutter, also what this session did not drive.

        Raises
        ------
        InstrumentError
            If an instrument could not be made safe; all others were.
        """
        failures: list[str] = []
        with deferred_signals(), self._lock:
            self._require_open()
            self._heaters.driven = self._light.driven = True
            self._heaters.note_safe(reached=False)
            run_all(self._safe_steps(True, True), failures)
            self._heaters.note_safe(reached=not failures)
        if failures:
            raise unsafe_error(failures)

    def _safe_steps(self, heaters: bool, laser: bool) -> list[Step]:
        from qcodes.instrument import Instrument

        steps = [*(self._heaters.safe_steps() if heaters else ()), *(self._light.safe_steps() if laser else ())]
        # A driver that QCoDeS has closed already (Instrument.close_all) made itself safe then.
        return [step for step in steps if Instrument.exist(step[0])]

    def _require_open(self) -> None:
        if self._closed:
            raise InstrumentError(
                f"the bench in {self.folder} is closed; open it again with Bench.open, and use it inside its `with`"
            )

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
        with self._lock:
            return self._heaters.voltages

    @property
    def readings(self) -> int:
        """Number of `read_detectors` calls so far."""
        return self._light.readings

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

        In a session opened with ``simulate=True`` on a user's folder, the record gets a file of its own and
        chip.yaml is left alone: a real bench must never load the calibration of a simulated chip.

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
        with self._lock:
            path = self._store.save(record)
            self._record, self._interlock = record, self._interlock_for(record)
            return path

    def _interlock_for(self, record: "CalibrationRecord | None") -> Interlock:
        nominal = self._description.interlock
        if record is None:
            return nominal
        return nominal.with_resistance(record.resistance_ohm, record.resistance_beta_per_w)

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
        with self._lock:
            self._require_open()
            self._heaters.move(target, self._interlock)

    def set_voltage(self, heater: int, voltage: float) -> None:
        """Set one heater (position in the layout's order, from 0) in V; raises as `set_voltages`."""
        position = self._interlock.position(heater)
        with self._lock:  # read and set in one piece, so that threads do not undo one another's heaters
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
        with self._lock:
            self._require_open()
            return self._light.read()

    def read_heaters(self) -> HeaterReading:
        """Measure voltage and current of all heaters.

        Raises
        ------
        InstrumentError
            If a driver does not answer properly.
        """
        with self._lock:
            self._require_open()
            return self._heaters.read(self._interlock)

    def light(self, on: bool) -> None:
        """Let light into the chip, or stop it; the first time the laser gets its wavelength and power.

        Raises
        ------
        InstrumentError
            If the laser does not answer, or does not settle in time.
        """
        with self._lock:
            self._require_open()
            self._light.switch(on)
