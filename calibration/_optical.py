"""Start-up, optical part: offsets of generator, attenuators and mesh from complex readings.

Every stage uses that one phase enters a field as ``c0 + c1 exp(i phase)``.  For the MZIs of this chip the ratio
``c1 / c0`` is ``exp(i offset)`` in the cross path and ``-exp(i offset)`` in the bar path, whatever the rest of
the chip does; coupler errors enter the ratio's size only.
"""

import numpy as np
from numpy.typing import NDArray

from calibration._electrical import random_powers
from calibration._session import Array, Session
from optinc_hw.errors import CalibrationError, MatrixError
from optinc_hw.photonics import RectangularLayout, decompose, nearest_unitary

SWEEP_POINTS = 8
CLEAR_LINE_SNR = 12.0
"""Fringe amplitude over its residual (noise, and heat that reaches neighbours) at which one pass is enough."""
MIN_BRIGHTNESS = 0.3
"""Share of the light that a line's output must receive before the line is believed."""
LINE_PASSES = 16
SETTINGS = 3
"""Random settings of the whole chip from which the attenuators are seen."""


def affine_phase(power: Array, fields: NDArray[np.complex128], efficiency: float) -> tuple[complex, complex, float]:
    """Fit ``c0 + c1 exp(i efficiency P)`` to complex fields.

    Parameters
    ----------
    power
        Powers (points,) in W.
    fields
        Complex readings (points,).
    efficiency
        rad/W.

    Returns
    -------
    tuple
        c0, c1 and the rms residual.
    """
    design = np.stack([np.ones_like(power), np.exp(1j * efficiency * power)], axis=1)
    (c0, c1), *_ = np.linalg.lstsq(design, fields, rcond=None)
    residual = fields - design @ np.array([c0, c1])
    return complex(c0), complex(c1), float(np.sqrt(np.mean(np.abs(residual) ** 2)))


def period_steps(session: Session, heaters: NDArray[np.intp]) -> Array:
    """Powers (points, h) in W that step each heater evenly through one period."""
    share = np.arange(SWEEP_POINTS)[:, None] / SWEEP_POINTS
    return np.asarray(share * session.period_w[heaters])


def sweep_one_input(session: Session, port: int, heaters: NDArray[np.intp], steps: Array) -> NDArray[np.complex128]:
    """Sweep heaters and return the fields (points, n) that one input alone contributes.

    Half the difference of two sweeps with the input's external phase half a period apart: the light that other,
    imperfectly dark inputs leak cancels.
    """
    phi = int(session.layout.input_phi[port])
    rest = session.power.copy()
    sweeps = []
    for phase_power in (0.0, np.pi / session.efficiency[phi]):
        session.power = rest.copy()
        session.power[phi] = phase_power
        sweeps.append(session.sweep_fields(heaters, steps))
    session.power = rest
    return np.asarray((sweeps[0] - sweeps[1]) / 2.0)


def find_attenuators(session: Session) -> dict[str, Array]:
    """Offsets of all attenuators from one joint sweep (each acts on its own output only); opens them.

    Returns
    -------
    dict
        ``attenuator_fields`` (settings, points, n, 2), real and imaginary part.
    """
    heaters = session.layout.attenuator
    steps = period_steps(session, heaters)
    sums = np.zeros(len(heaters), dtype=np.complex128)
    raw = []
    for setting in range(SETTINGS):
        session.power = random_powers(session)
        fields = session.sweep_fields(heaters, steps)
        raw.append(fields)
        for j, heater in enumerate(heaters):
            c0, c1, _ = affine_phase(steps[:, j], fields[:, j], float(session.efficiency[heater]))
            sums[j] += -c1 * np.conj(c0)
        session.progress("attenuators", setting + 1, SETTINGS)
    session.offset[heaters] = np.angle(sums)
    for heater in heaters:
        session.power[heater] = session.power_for_phase(int(heater), np.pi)
    return {"attenuator_fields": _split(np.stack(raw))}


def find_generator(session: Session) -> dict[str, Array]:
    """Offsets of the input modulators' internal phases; leaves every input dark.

    With input i's modulator at phase theta its field is proportional to ``exp(i theta) - 1``.  The part of the
    output fields that turns with its own external phase phi is that field alone, so two settings of phi half a
    period apart isolate it from the other inputs.

    Returns
    -------
    dict
        ``generator_fields`` (n, points, n, 2), real and imaginary part.
    """
    layout = session.layout
    raw = []
    open_power = session.power.copy()
    for i, theta in enumerate(layout.input_theta):
        session.power = open_power.copy()
        steps = period_steps(session, np.array([theta]))
        fields = sweep_one_input(session, i, np.array([theta]), steps)
        raw.append(fields)
        total = 0.0 + 0.0j
        for j in range(layout.ports):
            c0, c1, _ = affine_phase(steps[:, 0], fields[:, j], float(session.efficiency[theta]))
            total += -c1 * np.conj(c0)
        session.offset[theta] = np.angle(total)
        session.progress("input modulators", i + 1, layout.ports)
    session.power = open_power
    for i in range(layout.ports):
        set_input(session, i, lit=False)
    return {"generator_fields": _split(np.stack(raw))}


def set_input(session: Session, port: int, *, lit: bool) -> None:
    """Open or close one input modulator in the session's next setting."""
    heater = int(session.layout.input_theta[port])
    session.power[heater] = session.power_for_phase(heater, np.pi if lit else 0.0)


def line(layout: RectangularLayout, port: int) -> list[int]:
    """MZIs (indices) that light from input ``port`` meets when every MZI is in the cross state."""
    index = {mzi: k for k, mzi in enumerate(layout.mzis)}
    mode, met = port, []
    for column in range(layout.ports):
        for upper in (mode - 1, mode):
            if (column, upper) in index:
                met.append(index[column, upper])
                mode = upper + 1 if mode == upper else upper
                break
    return met


def find_lines(session: Session) -> dict[str, Array]:
    """Offsets of all internal mesh phases, line by line; leaves the mesh in the cross state.

    With the earlier lines in cross, only one path leads from input i to output n-1-i, so the field there is a
    product of one factor per MZI of the line and each can be found whatever the others are.

    Returns
    -------
    dict
        ``line_fields`` (K, points, 2): the accepted sweep of each MZI.

    Raises
    ------
    CalibrationError
        If a line stays dark: nothing is built on a line that was not seen.
    """
    layout = session.layout
    n, count = layout.ports, len(layout.mesh.mzis)
    raw = np.zeros((count, SWEEP_POINTS), dtype=np.complex128)
    known: set[int] = set()
    for port in range(n):
        set_input(session, port, lit=True)
        unknown = [k for k in line(RectangularLayout(n), port) if k not in known]
        _climb_line(session, port, unknown, raw)
        known.update(unknown)
        set_input(session, port, lit=False)
        session.progress("mesh lines", len(known), count)
    return {"line_fields": _split(raw)}


def _climb_line(session: Session, port: int, unknown: list[int], raw: NDArray[np.complex128]) -> None:
    """Set a line's MZIs to cross one after the other until its output is bright; start anew where it is not."""
    output = session.layout.ports - 1 - port
    heaters = session.layout.mesh_theta[unknown]
    bright_passes, share = 0, 0.0
    for _ in range(LINE_PASSES):
        ratios = [_sweep_cross(session, k, port, raw) for k in unknown]
        fields = sweep_one_input(session, port, np.array([], dtype=np.intp), np.empty((1, 0)))[0]
        share = float(np.abs(fields[output]) ** 2 / np.sum(np.abs(fields) ** 2))
        if share < MIN_BRIGHTNESS:
            session.power[heaters] = session.rng.uniform(size=len(heaters)) * session.period_w[heaters]
            bright_passes = 0
            continue
        bright_passes += 1
        if bright_passes > 1 or min(ratios, default=np.inf) >= CLEAR_LINE_SNR:
            return
    raise CalibrationError(
        f"the line from input {port} to output {output} stays dark: {share:.1%} of the light arrives, "
        f"{MIN_BRIGHTNESS:.0%} are needed; check the heaters of its MZIs, raise the laser power or the averaging time"
    )


def _sweep_cross(session: Session, mzi: int, port: int, raw: NDArray[np.complex128]) -> float:
    """Sweep one MZI, set it to cross as far as seen, and return the signal to noise ratio."""
    heater = int(session.layout.mesh_theta[mzi])
    steps = period_steps(session, np.array([heater]))
    output = session.layout.ports - 1 - port
    fields = sweep_one_input(session, port, np.array([heater]), steps)[:, output]
    c0, c1, rms = affine_phase(steps[:, 0], fields, float(session.efficiency[heater]))
    raw[mzi] = fields
    session.offset[heater] = np.angle(c1 * np.conj(c0))
    session.power[heater] = session.power_for_phase(heater, 0.0)
    return abs(c1) / max(rms, 1e-300)


def find_columns(session: Session) -> dict[str, Array]:
    """Offsets of the external, output and input phases from one complex matrix at half-split MZIs.

    The matrix is balanced (port losses removed), made unitary and decomposed; with every internal phase at
    pi/2 the decomposition is unique.  Input phases are part of the gauge and are set to zero.

    Returns
    -------
    dict
        ``matrix`` (n, n, 2): the measured fields, real and imaginary part, in W; ``lo_readings`` (2n,) in W: the
        detectors with all inputs dark.
    """
    layout = session.layout
    period = session.period_w
    for heater in layout.mesh_theta:
        session.power[heater] = session.power_for_phase(int(heater), np.pi / 2)
    for heaters in (layout.mesh_phi, layout.output_phase, layout.input_phi):
        session.power[heaters] = period[heaters] / 2.0
    measured = measure_matrix(session)
    try:
        phases = decompose(nearest_unitary(balance(measured)), RectangularLayout(layout.ports))
    except MatrixError as error:
        raise CalibrationError(f"the measured matrix cannot be decomposed: {error}") from error
    drive = session.efficiency * session.power
    session.offset[layout.mesh_theta] = phases.theta - drive[layout.mesh_theta]
    session.offset[layout.mesh_phi] = phases.phi - drive[layout.mesh_phi]
    session.offset[layout.input_phi] = 0.0  # measured at zero power of phi
    # An open modulator or attenuator has the phase of exp(i pi) - 1, that is pi.
    session.offset[layout.output_phase] = phases.output - 2.0 * np.pi - drive[layout.output_phase]
    session.offset[layout.lo] = 0.0
    return {"matrix": _split(measured), "lo_readings": session.measure(session.power[None])[0]}


def measure_matrix(session: Session) -> NDArray[np.complex128]:
    """Complex matrix (n, n) at the session's setting: one open input at a time; leaves all inputs dark."""
    n = session.layout.ports
    columns = []
    none = np.array([], dtype=np.intp)
    for port in range(n):
        set_input(session, port, lit=True)
        columns.append(sweep_one_input(session, port, none, np.empty((1, 0)))[0])
        set_input(session, port, lit=False)
        session.progress("transfer matrix", port + 1, n)
    return np.stack(columns, axis=1)


def balance(matrix: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Scale rows and columns until all have unit norm (Sinkhorn), which removes losses at the ports.

    Raises
    ------
    CalibrationError
        If a row or column is dark.
    """
    work = np.array(matrix, dtype=np.complex128)
    for _ in range(100):
        for axis in (0, 1):
            norm = np.linalg.norm(work, axis=axis, keepdims=True)
            if not (norm > 0.0).all():
                raise CalibrationError("a port of the measured matrix is dark; check its light path and detector")
            work = work / norm
    return work


def _split(values: NDArray[np.complex128]) -> Array:
    """Real and imaginary part on a new last axis (netCDF has no portable complex type)."""
    return np.stack([values.real, values.imag], axis=-1)
