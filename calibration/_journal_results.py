"""Results of long fits in a journal, so that a resumed run does not repeat them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from calibration._journal import Journal
from calibration._journal_format import AnyArray
from calibration._twin_fit import NoiseModel, Settings, TwinFit
from optinc_hw.photonics import TwinParameters
from optinc_hw.photonics.twin import parameter_shapes


def twin_arrays(twin: TwinParameters) -> dict[str, AnyArray]:
    """All arrays of a twin by name."""
    return {name: getattr(twin, name) for name in parameter_shapes(twin.layout)}


def kept_fit(
    journal: Journal, data: Settings, start: TwinParameters, noise: NoiseModel, compute: Callable[[], TwinFit]
) -> TwinFit:
    """Return the fit of these data that the journal holds, or compute it and store it."""
    inputs = {
        **twin_arrays(start), "power_w": data.power_w, "readings_w": data.readings_w,
        "noise": np.array([noise.relative, noise.floor_w]),
    }  # fmt: skip

    def arrays() -> dict[str, AnyArray]:
        fit = compute()
        return {
            **twin_arrays(fit.parameters), "offset_sigma": fit.offset_sigma, "efficiency_sigma": fit.efficiency_sigma,
            "chi": np.array(fit.chi), "steps": np.array(fit.steps),
        }  # fmt: skip

    found = journal.result("twin fit", inputs, arrays)
    values: dict[str, Any] = {name: found[name] for name in parameter_shapes(start.layout)}  # Any: fields of many types
    return TwinFit(
        replace(start, **values), found["offset_sigma"], found["efficiency_sigma"],
        float(found["chi"]), int(found["steps"]),
    )  # fmt: skip
