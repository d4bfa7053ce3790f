"""Start-up, optical part: offsets of generator and attenuators from complex readings.

Every stage uses that one phase enters a field as ``c0 + c1 exp(i phase)``.  For the MZIs of this chip the ratio
``c1 / c0`` is ``exp(i offset)`` in the cross path and ``-exp(i offset)`` in the bar path, whatever the rest of
the chip does; coupler errors enter the ratio's size only.
"""

import numpy as np
from numpy.typing import NDArray

from calibration._electrical import random_powers
from calibration._session import Array, Session

SWEEP_POINTS = 8
SETTINGS = 3
"""Random settings of the whole chip from which the attenuators are seen."""


def affine_phase(power: Array, fields: NDArray[np.complex128], efficiency: float) -> tuple[complex, complex]:
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
        c0 and c1.
    """
    design = np.stack([np.ones_like(power), np.exp(1j * efficiency * power)], axis=1)
    (c0, c1), *_ = np.linalg.lstsq(design, fields, rcond=None)
    return complex(c0), complex(c1)


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
            c0, c1 = affine_phase(steps[:, j], fields[:, j], float(session.efficiency[heater]))
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
            c0, c1 = affine_phase(steps[:, 0], fields[:, j], float(session.efficiency[theta]))
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


def _split(values: NDArray[np.complex128]) -> Array:
    """Real and imaginary part on a new last axis (netCDF has no portable complex type)."""
    return np.stack([values.real, values.imag], axis=-1)
