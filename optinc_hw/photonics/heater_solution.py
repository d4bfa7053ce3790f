"""The inverse of a heater model: powers and voltages for wanted phases, with whole turns of least total power."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import LimitError, MatrixError
from optinc_hw.photonics._wraps import FAR, Heating
from optinc_hw.photonics.heater_model import HeaterModel
from optinc_hw.photonics.heaters import EFFORT, reduced


@dataclass(frozen=True)
class HeaterSolution:
    """Heater settings for wanted phases, and what is known of how good they are.

    Parameters
    ----------
    power_w, voltage_v
        Powers (H,) in W and the voltages (H,) in V that dissipate them.
    wraps
        Whole turns (H,): the settled phases are the wanted ones plus ``2 pi wraps``.
    total_power_w
        Sum of the powers in W.
    lower_bound_w
        Proven lower bound in W of the total power of all settings within the heaters' limits.
    proven
        Whether no other whole turns within the limits take less power (1e-9 of it aside).
    """

    power_w: NDArray[np.float64]
    voltage_v: NDArray[np.float64]
    wraps: NDArray[np.int64]
    total_power_w: float
    lower_bound_w: float
    proven: bool


def solve_heaters(
    model: HeaterModel,
    phases: ArrayLike,
    *,
    wavelength_m: float | None = None,
    temperature_k: float | None = None,
    effort: int = EFFORT,
) -> HeaterSolution:
    """Powers and voltages that give phases modulo 2 pi at the least total power, all limits kept.

    Bounds prove the answer in most cases; an integer programme settles the rest, up to ``effort`` branches.
    The reached phases deviate by less than 1e-7 rad from the wanted ones.

    Parameters
    ----------
    model
        The heaters.
    phases
        Wanted phases (H,) in rad.
    wavelength_m, temperature_k
        Where they are wanted; None is the design's.
    effort
        Branches that each of at most two integer programmes may take, so that the answer does not depend on how busy
        the computer is; with more than 100 undecided heaters none is tried.

    Returns
    -------
    HeaterSolution
        With ``proven=False`` where the proof was not found; it is never claimed without.

    Raises
    ------
    LimitError
        If no whole turns keep all limits, naming the heater (or the total) that stands in the way and what it needs, or
        if none were found and the message says that this is not proven.
    MatrixError
        If the phases have the wrong shape or are not finite, or the crosstalk matrix is singular.
    """
    from optinc_hw.photonics._wraps_exact import Obstacle, search  # scipy's optimisers are slow to import

    wanted = np.asarray(phases, float)
    if wanted.shape != (len(model),):
        raise MatrixError(f"phases have shape {wanted.shape}; {len(model)} heaters need ({len(model)},)")
    crosstalk = np.eye(len(model)) if model.crosstalk is None else model.crosstalk
    heating = Heating.of(crosstalk, model.efficiency(wavelength_m))
    fraction, whole = reduced(wanted - model.passive_phase(wavelength_m, temperature_k))
    largest = np.min(list(model.power_limits(temperature_k).values()), axis=0)
    answer = search(heating, fraction, np.minimum(largest / heating.price, FAR), effort)
    if isinstance(answer, Obstacle):
        price = float(heating.price[answer.heater])
        volts = model.voltage(np.full(len(model), answer.own * price), temperature_k)[answer.heater]
        raise LimitError(
            f"heater {model.name(answer.heater)} {answer.needs(price)}, which takes {volts:.3f} V; "
            f"{_limit(model, answer.heater, temperature_k)}"
        )
    own = heating.own(fraction + answer.turns)
    power = np.clip(own * heating.price, 0.0, largest)
    total = float(power.sum())
    if total > model.max_total_power_w * (1.0 + 1e-9):
        raise LimitError(_total(model, total, answer.bound_w))
    wraps = np.round(answer.turns - whole).astype(np.int64)
    bound = min(answer.bound_w, total)
    return HeaterSolution(power, model.voltage(power, temperature_k), wraps, total, bound, answer.proven)


def _limit(model: HeaterModel, heater: int, temperature_k: float | None) -> str:
    """Say which of a heater's limits binds."""
    allowed = {name: float(powers[heater]) for name, powers in model.power_limits(temperature_k).items()}
    name = min(allowed, key=allowed.__getitem__)
    unit = name[-1].upper()
    return (
        f"its {name} = {getattr(model, name)[heater]:.6g} {unit} allows {allowed[name] * 1e3:.2f} mW. "
        "Raise the limit if the chip allows it, or choose other phases"
    )


def _total(model: HeaterModel, total: float, bound: float) -> str:
    limit = model.max_total_power_w
    if bound > limit:
        known = f"would need {bound:.4g} W at the least"
    else:
        known = f"would need {total:.4g} W in the best attempt found; that less is impossible is not proven"
    return (
        f"all heaters together {known} for the asked phases; max_total_power_w = {limit:.4g} W. "
        "Raise the limit if chip and cooling allow it, or choose other phases"
    )
