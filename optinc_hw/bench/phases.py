"""Phases on an open bench: read and moved by the calibration in force, and the transfer matrix measured with them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from optinc_hw.bench.bench import Bench
from optinc_hw.errors import CalibrationError, ConfigurationError, LimitError
from optinc_hw.photonics import TwinParameters
from optinc_hw.photonics.program import modulator_phases, modulator_range, quadratures

_TWO_PI = 2.0 * np.pi
_NEGLIGIBLE_TURNS = 1e-9
_PHASE_TOLERANCE_RAD = 1e-9
_CURVATURE_ROUNDS = 8


class PhaseDrive:
    """Phases of a bench's heaters, by the calibration in force.

    A phase is that of the heater's arm against the other one (against the bare waveguide for an external phase), heat
    of all other heaters included: ``twin.phases(powers)``. When one is moved, the others are held: crosstalk is
    compensated by their own heaters, as far as these can be cooled.

    Parameters
    ----------
    bench
        An open bench with a calibration in force.

    Raises
    ------
    CalibrationError
        If there is no calibration in force.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._twin: TwinParameters = bench.require_record().twin()
        movable = self._twin.layout.movable
        self._movable = np.flatnonzero(movable)
        heating = self._twin.crosstalk[np.ix_(self._movable, self._movable)] * self._twin.efficiency[self._movable]
        self._power_per_phase = np.linalg.inv(heating)

    @property
    def twin(self) -> TwinParameters:
        """Parameters of the calibration."""
        return self._twin

    @property
    def powers(self) -> NDArray[np.float64]:
        """Electrical power (H,) in W at the voltages last set."""
        return self._bench.interlock.power(self._bench.voltages)

    def phases(self) -> NDArray[np.float64]:
        """Phases (H,) in rad at the voltages last set, not wrapped."""
        return self._twin.phases(self.powers)

    def set(self, phases: Mapping[int, float]) -> None:
        """Move the phases of some heaters and hold all others.

        Of the phases that differ by whole turns, the one with the least power of its heater is taken.

        Parameters
        ----------
        phases
            Phase in rad, modulo 2 pi, by the heater's position in the layout's order.

        Raises
        ------
        LimitError
            If a phase is not finite, a heater's phase is stuck, or a limit allows no whole number of turns; nothing
            was moved.
        InstrumentError
            If a driver failed.
        """
        self._bench.set_voltages(self.voltages_for(phases))

    def voltages_for(self, phases: Mapping[int, float]) -> NDArray[np.float64]:
        """Voltages (H,) in V that `set` would set; raises LimitError as it does."""
        power = self.powers
        change = np.zeros(len(power))
        present = self._twin.phases(power)
        for heater, phase in phases.items():
            self._check(heater, phase)
            change[heater] = phase - present[heater]
        moved = np.array(sorted(phases), dtype=np.intp)
        power = self._least_power(power, change, moved)
        return self._bench.interlock.voltage(np.clip(power, 0.0, None))

    def _check(self, heater: int, phase: float) -> None:
        name = self._twin.layout.heaters[heater]
        if not np.isfinite(phase):
            raise LimitError(f"heater {name}: phase {phase} rad is not finite; nothing was moved")
        if heater not in self._movable:
            raise LimitError(f"heater {name}: its phase is stuck (mesh.stuck in chip.yaml); nothing was moved")

    def _least_power(
        self, power: NDArray[np.float64], change: NDArray[np.float64], moved: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Powers (H,) with whole turns added to each moved phase until its heater needs no negative power."""
        efficiency = self._twin.efficiency[moved]
        for _ in range(2):  # a turn of one heater changes the others' needs by crosstalk
            wanted = power.copy()
            wanted[self._movable] += self._power_per_phase @ change[self._movable]
            turns = np.ceil(-wanted[moved] * efficiency / _TWO_PI - _NEGLIGIBLE_TURNS)
            change[moved] += _TWO_PI * turns
        goal = self._twin.phases(power)[self._movable] + change[self._movable]
        wanted = power.copy()
        wanted[self._movable] += self._power_per_phase @ change[self._movable]
        for _ in range(_CURVATURE_ROUNDS):  # phases are not quite linear in heat
            missing = goal - self._twin.phases(wanted)[self._movable]
            if np.abs(missing).max(initial=0.0) < _PHASE_TOLERANCE_RAD:
                break
            wanted[self._movable] += self._power_per_phase @ missing
        return wanted


def measure_transfer_matrix(bench: Bench) -> NDArray[np.complex128]:
    """Measure the complex matrix from the mesh inputs to the receivers at the present setting of the mesh.

    One input after the other gets the largest field that all modulators can send, at phase 0 and pi, while the others
    are as dark as they get; the local oscillator reads both quadratures. Half the difference of the two signs frees
    the result of what the dark inputs leak. That makes ``4 n`` readings. Input modulators and local oscillator are
    set back at the end; the light is switched on and stays on.

    Parameters
    ----------
    bench
        An open bench with a calibration in force.

    Returns
    -------
    NDArray
        (n, n) complex128; rows are receivers, columns inputs; field transmission, with phases against the local
        oscillator as the calibration counts them. Compare it with another one up to phases of ports.

    Raises
    ------
    ConfigurationError
        If the chip has no input modulators or no homodyne receivers; nothing was moved.
    CalibrationError
        If there is no calibration in force, or a detector is out of range.
    LimitError
        If a heater cannot reach a phase that is needed; nothing was moved.
    InstrumentError
        If an instrument fails.
    """
    _require_modulators_and_homodyne(bench)
    drive = PhaseDrive(bench)
    before = bench.voltages
    settings = _settings(drive)
    bench.light(on=True)
    try:
        read = np.array([_read(bench, drive, setting) for setting in settings])
    finally:
        bench.set_voltages(before)
    n = bench.layout.ports
    by_input = read.reshape(n, 2, 2, n)  # input, quadrature, sign, receiver
    halves = 0.5 * (by_input[:, :, 0] - by_input[:, :, 1])
    # At LO phase 0 a receiver reads the imaginary part, a quarter turn before it the real part.
    matrix: NDArray[np.complex128] = (halves[:, 1] + 1j * halves[:, 0]).T / _reference(drive.twin)
    return matrix


def _require_modulators_and_homodyne(bench: Bench) -> None:
    layout = bench.layout
    if layout.inputs != "modulators" or layout.receivers != "homodyne":
        raise ConfigurationError(
            f"the chip of {bench.folder} has inputs: {layout.inputs} and receivers: {layout.receivers}; a complex "
            f"matrix is measured here with modulators and homodyne receivers only"
        )


def _reference(twin: TwinParameters) -> float:
    return float(modulator_range(twin)[0].min())


def _settings(drive: PhaseDrive) -> list[NDArray[np.float64]]:
    """Voltages (H,) of each reading, all checked before the first is set."""
    twin, layout = drive.twin, drive.twin.layout
    reference = _reference(twin)
    settings = []
    for port in range(twin.ports):
        for quarter in (0.0, -0.5 * np.pi):
            for sign in (1.0, -1.0):
                fields = np.zeros((1, twin.ports))
                fields[0, port] = sign * reference
                theta, phi = modulator_phases(twin, fields)
                wanted = dict(zip(layout.input_theta.tolist(), theta[0].tolist(), strict=True))
                wanted |= dict(zip(layout.input_phi.tolist(), phi[0].tolist(), strict=True))
                wanted[layout.lo] = quarter
                settings.append(drive.voltages_for(wanted))
    return settings


def _read(bench: Bench, drive: PhaseDrive, voltages: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quadratures (n,) in sqrt(W) at one setting."""
    bench.set_voltages(voltages)
    bench.settle()
    reading = bench.read_detectors()
    if not reading.valid.all():
        bad = [bench.layout.detectors[d] for d in np.flatnonzero(~reading.valid)]
        raise CalibrationError(
            f"detectors {', '.join(bad)} are out of range while the transfer matrix is measured; check laser power and "
            f"meter ranges"
        )
    return quadratures(drive.twin, reading.power_w)
