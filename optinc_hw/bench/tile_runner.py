"""Tiles on a twin and on the bench: program a matrix once, then stream vectors of amplitudes through it."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.bench.bench import Bench
from optinc_hw.bench.record import CalibrationRecord
from optinc_hw.errors import CalibrationError, ConfigurationError
from optinc_hw.photonics import ChipLayout, ChipModel, TwinParameters
from optinc_hw.photonics.program import ProgrammedMatrix, program_matrix


class TwinTileRunner:
    """Runs tiles on the calibrated model of a chip.

    Parameters
    ----------
    record
        The calibration; its noise is the twin's noise.
    rng
        Source of the reading noise; None runs without noise.
    max_power_w
        Limit of every heater in W.

    Raises
    ------
    ConfigurationError
        If the chip has no modulators or no homodyne receivers.
    """

    def __init__(
        self, record: CalibrationRecord, rng: np.random.Generator | None = None, max_power_w: ArrayLike = np.inf
    ) -> None:
        self._twin = record.twin()
        _require_generator_and_receivers(self._twin.layout)
        self._model = ChipModel.from_parameters(self._twin)
        self._noise = (record.quality.noise_relative, record.quality.noise_floor_w)
        self._rng = rng
        self._max_power_w = max_power_w
        self._programmed: ProgrammedMatrix | None = None

    @property
    def ports(self) -> int:
        """Ports of the chip."""
        return self._twin.ports

    def program(self, matrix: NDArray[np.float64]) -> None:
        """Set the twin to a matrix; see `optinc_hw.photonics.program.program_matrix` for errors."""
        self._programmed = None  # a matrix that is refused must not leave the former one to multiply by
        self._programmed = program_matrix(self._twin, matrix, self._max_power_w)

    def load(self, programmed: ProgrammedMatrix) -> None:
        """Take a matrix that was programmed before, such as a retrained one."""
        self._programmed = programmed

    def forward(self, amplitudes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the twin's products (batch, rows) for amplitudes (batch, cols) in [-1, 1]."""
        programmed = _require_programmed(self._programmed)
        readings = self._model.readings(self._twin, programmed.drive(amplitudes))
        if self._rng is not None:
            relative, floor = self._noise
            readings = readings + np.hypot(relative * readings, floor) * self._rng.standard_normal(readings.shape)
        return programmed.decode(readings)


class BenchTileRunner:
    """Runs tiles on the instruments.

    Parameters
    ----------
    bench
        An open bench; `forward` switches its light on and leaves it on.
    twin
        Parameters to program with; None takes the calibration in force.  Another twin (such as the nominal one) shows
        what the chip does without calibration.  Powers become voltages by the resistances in force on the bench, so
        save a new record (``bench.save_record``) before its twin is of use.

    Raises
    ------
    ConfigurationError
        If the chip has no modulators or no homodyne receivers.
    CalibrationError
        If there is no calibration in force, or the twin is of another chip.
    """

    def __init__(self, bench: Bench, twin: TwinParameters | None = None) -> None:
        _require_generator_and_receivers(bench.layout)
        self._bench = bench
        self._twin = bench.require_record().twin() if twin is None else twin
        if self._twin.ports != bench.layout.ports:
            raise CalibrationError(
                f"the twin has {self._twin.ports} ports, the bench {bench.layout.ports}; use the record of this chip"
            )
        if self._twin.layout != bench.layout:
            raise CalibrationError(
                "the twin has other MZIs or other stuck phases than the bench; use the record of this chip"
            )
        self._programmed: ProgrammedMatrix | None = None

    @property
    def ports(self) -> int:
        """Ports of the chip."""
        return self._bench.layout.ports

    def program(self, matrix: NDArray[np.float64]) -> None:
        """Solve for the matrix; light and heaters follow with the first vectors.

        Raises
        ------
        MatrixError
            If the matrix does not fit the chip or its norm exceeds 1.
        LimitError
            If a heater would exceed its limit; nothing was moved.
        """
        self._programmed = None  # a matrix that is refused must not leave the former one to multiply by
        self._programmed = program_matrix(self._twin, matrix, self._bench.max_power)

    def load(self, programmed: ProgrammedMatrix) -> None:
        """Take a matrix that was programmed before, such as a retrained one; nothing moves yet.

        Raises
        ------
        CalibrationError
            If it is of another chip.
        """
        if programmed.parameters.layout != self._bench.layout:
            raise CalibrationError("the programmed matrix is of another chip than this bench's; program it anew")
        self._programmed = programmed

    def forward(self, amplitudes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Send vectors (batch, cols) through the chip one by one; returns products (batch, rows).

        Raises
        ------
        MatrixError
            If the amplitudes do not fit; nothing was moved.
        LimitError
            If a heater would exceed its limit; nothing was moved.
        CalibrationError
            If a detector reading is out of range; it is never used as a value.
        InstrumentError
            If an instrument fails.
        """
        programmed = _require_programmed(self._programmed)
        voltages = self._bench.interlock.voltage(programmed.drive(amplitudes))
        self._bench.light(on=True)  # something else may have left the chip dark since
        rows = []
        for setting in voltages:
            self._bench.set_voltages(setting)
            self._bench.settle()
            reading = self._bench.read_detectors()
            if not reading.valid.all():
                bad = [self._bench.layout.detectors[d] for d in np.flatnonzero(~reading.valid)]
                raise CalibrationError(
                    f"detectors {', '.join(bad)} are out of range while a tile runs; check laser power and meter ranges"
                )
            rows.append(reading.power_w)
        count = len(self._bench.layout.detectors)
        return programmed.decode(np.array(rows, dtype=np.float64).reshape(len(rows), count))


def _require_generator_and_receivers(layout: ChipLayout) -> None:
    if layout.inputs != "modulators" or layout.receivers != "homodyne":
        raise ConfigurationError(
            f"this chip has inputs: {layout.inputs} and receivers: {layout.receivers}; tiles need modulators that send "
            f"vectors and homodyne receivers that read their products"
        )


def _require_programmed(programmed: ProgrammedMatrix | None) -> ProgrammedMatrix:
    if programmed is None:
        raise CalibrationError("no matrix is programmed; call program(matrix) before forward(amplitudes)")
    return programmed
