"""Experiments that measure a chip's transfer matrix: two-port and generic inputs with power readings, and homodyne."""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from calibration._arrays import complexes, fits, text_of
from calibration._checks import require_whole
from calibration._leaving import light_as_found, voltages_as_found
from calibration._matrix import ComplexArray, TransferMatrix
from calibration._matrix_pairs import plan_pairs
from calibration._matrix_retrieval import fewest_inputs, generic_fields, matrix_from_generic_inputs
from calibration._matrix_sources import matrix_from_repeats
from calibration._matrix_two_port import ideal_fields, matrix_from_two_port
from calibration._session import Array, Progress
from calibration._twin_fit import NoiseModel
from optinc_hw.bench import Bench, DetectorReading, PhaseDrive, measure_transfer_matrix
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipModel, TwinParameters
from optinc_hw.photonics.program import modulator_phases, modulator_range

GENERIC_INPUTS = 6
"""Generic inputs for each port: half as many again as determine a row, so that the solution is found and tested."""


class CoherentInputs(Protocol):
    """A source of coherent light in all inputs of a chip at once, and what reads the output powers."""

    ports: int
    noise: NoiseModel

    def measure(self, stage: str, fields: ComplexArray) -> tuple[ComplexArray, Array]:
        """Measure one sweep.

        Parameters
        ----------
        stage
            What it is for.
        fields
            Wanted input fields (B, n); 1 is the largest one that every input can have.

        Returns
        -------
        tuple
            The fields (B, n) in sqrt(W) that really entered, leaks of closed inputs included, and output powers (B, m)
            in W.
        """
        ...


class ModulatedInputs:
    """Input modulators of a calibrated bench as a source; the mesh stays as it is at the start.

    Modulators of finite extinction cannot close: what enters is what the twin says, not what was wanted. With homodyne
    receivers the power of an output is the sum of both photodiodes without the local oscillator's light.  Heaters are
    set back after each sweep, and the light is left alone, also after an error.

    Parameters
    ----------
    bench
        An open bench with a calibration in force, its light on.
    detector_noise
        Noise of a detector reading.
    progress
        Called with (stage, done, total).
    """

    def __init__(self, bench: Bench, detector_noise: NoiseModel, progress: Progress) -> None:
        if bench.layout.inputs != "modulators":
            raise CalibrationError("this chip has no input modulators; light its ports from outside")
        self._bench = bench
        self._drive = PhaseDrive(bench)
        self._progress = progress
        self._model = ChipModel.from_parameters(self._twin)
        self._unit = float(modulator_range(self._twin)[0].min())
        self.ports = bench.layout.ports
        self.noise = _output_noise(self._twin, detector_noise)

    @property
    def _twin(self) -> TwinParameters:
        return self._drive.twin

    def measure(self, stage: str, fields: ComplexArray) -> tuple[ComplexArray, Array]:
        """See `CoherentInputs`.

        Raises
        ------
        CalibrationError
            If ``fields`` are no finite numbers (B, n), or a detector is out of range.
        LimitError
            If a heater cannot reach a phase that is needed.
        InstrumentError
            If an instrument fails.
        """
        wanted = complexes("fields", fields)
        if not fits(wanted, ("B", self.ports)) or not np.isfinite(wanted).all():
            raise CalibrationError(
                f"fields must be finite and have the shape {text_of(('B', self.ports))}, got {wanted.shape}; give a "
                "row a setting, an entry an input"
            )
        voltages = [self._voltages(row) for row in wanted]
        entered, powers = [], []
        with voltages_as_found(self._bench):
            for done, setting in enumerate(voltages):
                reading = self._bench.measure(setting)
                entered.append(self._entered(setting))
                powers.append(self._powers(stage, reading))
                self._progress(stage, done + 1, len(voltages))
        n = self.ports
        return np.array(entered, complex).reshape(-1, n), np.array(powers, float).reshape(-1, n)

    def _voltages(self, fields: ComplexArray) -> Array:
        layout = self._twin.layout
        theta, phi = modulator_phases(self._twin, np.abs(fields)[None] * self._unit)
        wanted = dict(zip(layout.input_theta.tolist(), theta[0].tolist(), strict=True))
        wanted |= dict(zip(layout.input_phi.tolist(), (phi[0] + np.angle(fields)).tolist(), strict=True))
        return self._drive.voltages_for(wanted)

    def _entered(self, voltages: Array) -> ComplexArray:
        phases = torch.as_tensor(self._twin.phases(self._bench.interlock.power(voltages))[None])
        with torch.no_grad():
            return np.asarray(self._model.inputs(phases)[0].numpy(), dtype=np.complex128)

    def _powers(self, stage: str, reading: DetectorReading) -> Array:
        if not reading.valid.all():
            bad = ", ".join(self._twin.layout.detectors[d] for d in np.flatnonzero(~reading.valid))
            raise CalibrationError(f"{stage}: detectors {bad} are out of range; check laser power and meter ranges")
        power = (reading.power_w - self._twin.dark_w) / self._twin.gain
        if not self._twin.layout.homodynes:
            return np.asarray(power)
        return np.asarray(power[: self.ports] + power[self.ports :] - self._twin.lo_amplitude**2)


def measure_two_port(inputs: CoherentInputs, *, steps: int = 4, most: int | None = None) -> TransferMatrix:
    """Measure a matrix with single inputs and with pairs of them whose relative phase is stepped.

    Parameters
    ----------
    inputs
        The source and the power readings.
    steps
        Phase steps of each pair, evenly over a turn; at least 3.
    most
        Largest number of pairs, see `plan_pairs`; at least n - 1.

    Returns
    -------
    TransferMatrix
        Field transmission; n - 1 pairs where the matrix has no dark elements, more where it has.

    Raises
    ------
    CalibrationError
        If a number is no whole one, or too small; nothing was measured then.
    """
    require_whole("steps", steps, 3)
    if most is not None:
        require_whole("most", most, inputs.ports - 1)
    n = inputs.ports
    lit, single = inputs.measure("single inputs", np.eye(n, dtype=complex))
    share = single / np.abs(np.diagonal(lit))[:, None] ** 2 * float(np.abs(np.diagonal(lit)).max()) ** 2
    pairs = plan_pairs(share, inputs.noise, steps, most)
    phases = np.tile(2.0 * np.pi * np.arange(steps) / steps, (len(pairs), 1))
    entered, fringes = inputs.measure("pairs of inputs", ideal_fields(n, pairs, phases)[n:])
    fields = np.concatenate([lit, entered])
    by_pair = fringes.reshape(len(pairs), steps, -1)
    return matrix_from_two_port(single, pairs, phases, by_pair, inputs.noise, fields=fields, gauge="outputs")


def measure_generic_inputs(
    inputs: CoherentInputs, rng: np.random.Generator, *, count: int | None = None
) -> TransferMatrix:
    """Measure a matrix with random coherent inputs and phase retrieval.

    Parameters
    ----------
    inputs
        The source and the power readings.
    rng
        Source of the inputs.
    count
        Number of input vectors, at least 4 n - 4; None means `GENERIC_INPUTS` for each port.

    Raises
    ------
    CalibrationError
        If ``count`` is no whole number, or too small; nothing was measured then.
    """
    if count is not None:
        require_whole("count", count, fewest_inputs(inputs.ports))
    number = max(GENERIC_INPUTS * inputs.ports, fewest_inputs(inputs.ports) + 2) if count is None else count
    fields, powers = inputs.measure("generic inputs", generic_fields(inputs.ports, number, rng))
    return matrix_from_generic_inputs(fields, powers, inputs.noise, seed=int(rng.integers(2**31)))


def measure_homodyne(bench: Bench, repeats: int = 4) -> TransferMatrix:
    """Measure a matrix with homodyne receivers several times; the scatter tells how sure it is.

    Switches the light on. Afterwards heaters and light are as they were, also after an error: the light is off unless
    this session had let it in.

    Parameters
    ----------
    bench
        An open bench with a calibration in force and homodyne receivers.
    repeats
        Number of measurements of 4 n readings each, at least 2.

    Raises
    ------
    CalibrationError
        If the chip has no homodyne receivers, there is no calibration in force, ``repeats`` is no whole number of at
        least 2, or a detector is out of range.
    LimitError
        If a heater cannot reach a phase that is needed.
    InstrumentError
        If an instrument fails.
    """
    require_whole("repeats", repeats, 2)
    if not bench.layout.homodynes:
        raise CalibrationError("this chip has no homodyne receivers; measure its matrix from powers")
    with light_as_found(bench):
        matrices = np.array([measure_transfer_matrix(bench) for _ in range(repeats)])
    return matrix_from_repeats(matrices, gauge="none")


def coherent_settings(
    twin: TwinParameters, count: int, rng: np.random.Generator, max_power_w: Array | float = np.inf
) -> tuple[Array, ComplexArray]:
    """Draw settings for `find_input_phases`: every heater over a turn, light of random phase in every port.

    Light in all ports tells about ten times as much as in two: n - 1 phases beat in every reading.

    Parameters
    ----------
    twin
        The twin whose input phases are to be found.
    count
        Number of settings; about 4 for each heater at 8 ports.
    rng
        Source of randomness.
    max_power_w
        Limit of each heater in W.

    Returns
    -------
    tuple
        Heater powers (count, H) in W, and fields (count, n) whose squared moduli add up to 1.

    Raises
    ------
    CalibrationError
        If ``count`` is no whole number of at least 0.
    """
    require_whole("count", count, 0)
    period = np.minimum(2.0 * np.pi / twin.efficiency, max_power_w)
    power = rng.uniform(size=(count, len(period))) * period
    return power, unit_fields(twin.ports, count, rng)


def unit_fields(ports: int, count: int, rng: np.random.Generator) -> ComplexArray:
    """Draw fields (count, n) of equal moduli and random phases whose squared moduli add up to 1."""
    phases: NDArray[np.float64] = 2.0 * np.pi * rng.random((count, ports))
    return np.asarray(np.exp(1j * phases) / np.sqrt(ports))


def _output_noise(twin: TwinParameters, noise: NoiseModel) -> NoiseModel:
    """Noise of an output's power: two photodiodes that also see the local oscillator, or one that does not."""
    gain = float(twin.gain.mean())
    if not twin.layout.homodynes:
        return NoiseModel(noise.relative, noise.floor_w / gain)
    each = noise.sigma(0.5 * gain * twin.lo_amplitude**2) / gain
    return NoiseModel(noise.relative, float(np.sqrt(2.0) * each.max()))
