"""Total power of a chip that is scarce: starts and discoveries keep to it, or say by which number it is too low."""

import re

import numpy as np
import pytest
from _discovery_chips import FaultyMesh
from _lab_mesh import LabMesh

from calibration import find_start
from calibration._discovery import judge
from calibration._discovery_map import find_channels
from calibration._start_power import room_for
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError

NOISE = NoiseModel(1e-3, 1e-5)


def limited(kind):
    """A chip that notes its settings and stops where they exceed the total power limit."""

    class Limited(kind):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.settings = []

        def measure(self, stage, power_w, lit):
            assert power_w.sum(axis=1).max() <= self.max_total_power_w, stage
            self.settings.append(power_w.copy())
            return super().measure(stage, power_w, lit)

        @property
        def whole_w(self):
            """What all heaters take together at a whole circle each, in W, at most."""
            return float(np.minimum(2.0 * np.pi / self.nominal_efficiency, self.max_power_w).sum())

    return Limited


def start(chip, seed=0):
    return find_start(chip, np.random.default_rng(seed), NoiseModel(1e-3, 1e-8), lambda *told: None)


def discovered(chip, seed=0):
    return judge(chip.layout, find_channels(chip, NOISE, np.random.default_rng(seed)))


@pytest.mark.parametrize("share", [0.601, 0.65, 0.75, 0.9])
@pytest.mark.parametrize(("ports", "seed"), [(2, 0), (4, 2), (5, 3), (6, 1)])
def test_a_start_keeps_to_any_limit_that_it_accepts(ports, seed, share):
    chip = limited(LabMesh)(ports, seed)
    chip.max_total_power_w = share * chip.whole_w
    result = start(chip)
    assert all(verdict.good for verdict in result.verdicts)
    assert result.doubt == ""


@pytest.mark.parametrize("name", ["mzi_0_2_theta", "mzi_2_2_phi"])
def test_a_start_with_a_dead_heater_keeps_to_the_limit(name):
    chip = limited(LabMesh)(6, 0, dead=(name,))
    chip.max_total_power_w = 0.62 * chip.whole_w
    assert name in {verdict.heater for verdict in start(chip).verdicts if verdict.dead}


def test_a_start_from_both_sides_keeps_to_the_limit():
    """Meshes of more than 12 columns are found from the inputs, too."""
    chip = limited(LabMesh)(13, 0)
    chip.max_total_power_w = 0.62 * chip.whole_w
    start(chip)


@pytest.mark.parametrize("ports", [2, 4, 6])
def test_the_limit_that_is_named_is_the_one_that_counts(ports):
    chip = limited(LabMesh)(ports, 0)
    chip.max_total_power_w = 0.05 * chip.whole_w
    with pytest.raises(CalibrationError) as caught:
        start(chip)
    needed = float(re.search(r"heaters: ([\d.]+) W are needed", str(caught.value))[1])
    assert needed == pytest.approx(0.6 * chip.whole_w, rel=1e-3)
    chip.max_total_power_w = 0.999 * needed
    with pytest.raises(CalibrationError, match="are needed"):
        start(chip)
    chip.max_total_power_w = 1.001 * needed
    start(chip)


@pytest.mark.parametrize("share", [0.4, 0.5, 0.6, 0.8])
@pytest.mark.parametrize("ports", [4, 6])
def test_a_discovery_keeps_to_the_limit(ports, share):
    chip = limited(FaultyMesh)(ports, 1, swapped=2)
    chip.max_total_power_w = share * chip.whole_w
    result = discovered(chip)
    moved = {v.driven_by for v in result.heaters if v.state == "swapped"}
    assert len(moved) == 2
    assert sum(v.state == "ok" for v in result.heaters) == len(result.heaters) - 2


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_a_discovery_without_room_says_so(share):
    chip = limited(FaultyMesh)(4, 1)
    chip.max_total_power_w = share * chip.whole_w
    with pytest.raises(CalibrationError, match=r"take ([\d.]+) W, more than .* raise limits.total_power_w"):
        discovered(chip)


@pytest.mark.parametrize(("kind", "run"), [(LabMesh, start), (FaultyMesh, discovered)])
def test_settings_are_the_same_where_the_limit_is_not_reached(kind, run):
    free = limited(kind)(4, 1)
    free.max_total_power_w = 1e3
    run(free)
    most = max(float(power.sum(axis=1).max()) for power in free.settings)
    near = limited(kind)(4, 1)
    near.max_total_power_w = 1.5 * most
    run(near)
    assert len(free.settings) == len(near.settings)
    for one, other in zip(free.settings, near.settings, strict=True):
        np.testing.assert_array_equal(one, other)


def test_room_is_what_the_states_leave():
    power = np.array([[1.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    kept = np.array([True, False, False])
    assert room_for(power, kept, 10.0, "a sweep") == 1.0
    assert room_for(power, kept, 3.0, "a sweep") == pytest.approx((0.95 * 3.0 - 1.0) / 3.0)
    assert room_for(power[:0], kept, 3.0, "a sweep") == 1.0
    assert room_for(0.0 * power, kept, 3.0, "a sweep") == 1.0
    with pytest.raises(CalibrationError, match=r"a sweep.* take 1 W, more than 0.95 W"):
        room_for(power, kept, 1.0, "a sweep")
