"""Records of hidden bare meshes that are the truth about them: what judges programming and verification."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from test_bench_record import make_record

from calibration import CalibrationRecord
from optinc_hw import Bench
from optinc_hw.bench.record import Quality
from optinc_hw.photonics import TwinParameters
from optinc_hw.units import dbm_to_watt
from simulated_instruments import HiddenChip, HiddenEffects


@dataclass(frozen=True)
class TrueMesh:
    """A hidden bare mesh: its truth as a twin, and a bench around it."""

    chip: HiddenChip
    twin: TwinParameters
    preset: str
    seed: int

    @classmethod
    def of(cls, preset, ports, seed):
        effects = HiddenEffects.preset(preset)
        chip = HiddenChip.from_seed(seed, ports, inputs="ports", receivers="power", effects=effects)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
            from _truth import true_twin
        return cls(chip, true_twin(chip, dbm_to_watt(10.0)), preset, seed)

    def bench(self, **changes):
        """A simulated bench; changes are keys of a hidden_chip.yaml."""
        ports = self.twin.ports
        chip = {"preset": self.preset, "ports": ports, "seed": self.seed, **changes}
        return Bench.simulated(ports, self.seed, kind="mesh", chip=chip)

    def record(self, **changes):
        """The record of the true twin, or of one with other parameters."""
        parameters, effects = self.chip.parameters, self.chip.effects
        law = parameters.resistance_ohm, parameters.resistance_growth_per_w
        nothing = np.zeros(len(self.twin.offset))
        quality = Quality(
            residual_over_noise=1.0, held_out_settings=10, readings=100, noise_relative=effects.noise_relative,
            noise_floor_w=effects.noise_floor_w,
        )  # fmt: skip
        twin = replace(self.twin, **changes)
        return CalibrationRecord.from_twin(twin, *law, (nothing, nothing), quality, make_record().provenance)
