"""What retraining refuses: values that are not finite, settings beyond limits, foreign checkpoints, odd arguments."""

from dataclasses import replace

import numpy as np
import pytest
from twins import imperfect_twin

from calibration import HeaterDac, RetrainingSettings, TwinDoubt, judge, retrain
from optinc_hw.errors import CalibrationError, LimitError
from optinc_hw.onn import build_cell, build_exact, tile
from optinc_hw.photonics import power_from_voltage, voltage_from_power
from optinc_hw.photonics.program import program_matrix

LIMIT_W = 0.055
QUICK = RetrainingSettings(judged=60, rounds=1, settings=1, checked=40)


class Perfect:
    """A chip of 4 ports that multiplies as asked; ``loaded`` holds all that it was set to."""

    ports = 4

    def __init__(self):
        self.loaded = []

    def load(self, programmed):
        self.loaded.append(programmed)

    def forward(self, amplitudes):
        return amplitudes @ self.loaded[-1].matrix.T


class Broken(Perfect):
    """One product of those matrices, or batches, that ``when`` tells is not finite."""

    def __init__(self, value, when):
        super().__init__()
        self._value, self._when = value, when

    def forward(self, amplitudes):
        products = super().forward(amplitudes)
        if self._when(self.loaded[-1], amplitudes):
            products[7, 0] = self._value
        return products


@pytest.fixture(scope="module")
def twin():
    return imperfect_twin(4, 1)


@pytest.fixture(scope="module")
def dac(twin):
    heaters = len(twin.offset)
    return HeaterDac(0.03, np.full(heaters, 1250.0), np.full(heaters, 0.8))


CELL = tile(build_cell(4, slope=8.0), 4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("index", range(len(CELL.tiles)))
def test_no_product_that_is_not_finite_is_judged(index, value):
    """Saturating units would make 0 or 1 of Inf, and NaN is not further from an answer than half a level."""
    matrix = CELL.tiles[index].matrix
    runner = Broken(value, lambda programmed, _: programmed.matrix is matrix)
    assert judge(CELL, CELL.tiles, Perfect(), inputs=60).wrong == 0
    where = f"tile {index} of layer {CELL.tiles[index].layer}: 1 of .* not finite, the first {value} at input 7, row 0"
    with pytest.raises(CalibrationError, match=where):
        judge(CELL, CELL.tiles, runner, inputs=60)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("batch", [QUICK.inputs, QUICK.checked], ids=["training", "check"])
def test_no_product_that_is_not_finite_is_learned_or_checked(batch, value, twin, dac):
    runner = Broken(value, lambda _, amplitudes: len(amplitudes) == batch)
    with pytest.raises(CalibrationError, match=r"tile 0 of layer 0: 1 of .* not finite"):
        retrain(CELL, runner, twin, dac, QUICK, max_power_w=LIMIT_W)


def test_a_network_is_judged_with_a_matrix_for_each_tile():
    with pytest.raises(CalibrationError, match=f"1 programmed matrices were given for the plan's {len(CELL.tiles)}"):
        judge(CELL, CELL.tiles[:1], Perfect())
    for name, value in (("inputs", 0), ("inputs", 2.5), ("inputs", True), ("seed", -1)):
        with pytest.raises(CalibrationError, match=f"{name} must be a whole number of at least"):
            judge(CELL, CELL.tiles, Perfect(), **{name: value})


@pytest.mark.parametrize("whole", [True, False])
def test_no_setting_exceeds_its_limit(whole):
    """Powers up to the limit, limits on the lattice, just beside it and anywhere; others are the nearest, by hand."""
    rng, count = np.random.default_rng(0), 2000
    dac = HeaterDac(0.037, rng.uniform(200.0, 3000.0, count), rng.uniform(0.0, 3.0, count), whole)
    on_lattice = power_from_voltage(rng.integers(1, 200, count) * 0.037, dac.resistance_ohm, dac.beta_per_w)
    for limit in (on_lattice, np.nextafter(on_lattice, 0.0), rng.uniform(1e-3, 0.1, count)):
        for power in (limit, rng.uniform(0.98, 1.0, count) * limit, rng.uniform(0.0, 1.0, count) * limit):
            found = dac.settings(power, limit)
            assert (dac.power(found) <= limit).all()
            steps = voltage_from_power(power, dac.resistance_ohm, dac.beta_per_w) / 0.037
            assert (np.abs(found - steps) <= (1.0 + 1e-9 if whole else 1e-9)).all()
            fits = (
                power_from_voltage(np.rint(steps) * 0.037, dac.resistance_ohm, dac.beta_per_w) < (1.0 - 1e-12) * limit
            )
            if whole:
                np.testing.assert_array_equal(found[fits], np.rint(steps)[fits])
                np.testing.assert_array_equal(found, np.rint(found))


def test_no_setting_that_is_tried_exceeds_its_limit(twin, dac):
    """The heater that needs most is 0.6 steps above a setting, and its limit just above what it needs."""
    inputs = 2 * twin.layout.modulators
    need = max(float(program_matrix(twin, part.matrix).static_power_w.max()) for part in CELL.tiles)
    coarse = replace(dac, step_v=float(voltage_from_power(need, 1250.0, 0.8)) / 20.6)
    limits = np.full(len(twin.offset), 1.0001 * need)
    limits[:inputs] = LIMIT_W
    runner = Perfect()
    found = retrain(CELL, runner, twin, coarse, QUICK, max_power_w=limits)
    assert all((programmed.static_power_w <= limits).all() for programmed in runner.loaded)
    assert all((part.programmed.static_power_w <= limits).all() for part in found.tiles)


def test_limits_that_a_matrix_does_not_fit_are_told(twin, dac):
    with pytest.raises(LimitError, match="limit"):
        retrain(CELL, Perfect(), twin, dac, QUICK, max_power_w=1e-4)


NETWORK = tile(build_exact(4, 4, slope=8.0, rounding="half_up"), 4)


@pytest.fixture(scope="module")
def begun(twin, dac, tmp_path_factory):
    """A checkpoint of one finished tile of `NETWORK`."""
    file = tmp_path_factory.mktemp("begun") / "tiles.safetensors"

    def stop(_stage, done, _total):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retrain(NETWORK, Perfect(), twin, dac, QUICK, max_power_w=LIMIT_W, checkpoint=file, progress=stop)
    return file


def resumed(file, twin, dac, plan=NETWORK, settings=QUICK, limit=LIMIT_W):
    return retrain(plan, Perfect(), twin, dac, settings, max_power_w=limit, checkpoint=file, resume=True)


OTHER_DACS = {
    r"step_v \(0.03, now 0.08\)": lambda dac: replace(dac, step_v=0.08),
    r"whole \(True, now False\)": lambda dac: replace(dac, whole=False),
    "resistance law of the heaters": lambda dac: replace(dac, resistance_ohm=1.01 * dac.resistance_ohm),
    "law of the heaters": lambda dac: replace(dac, beta_per_w=1.01 * dac.beta_per_w),
}


@pytest.mark.parametrize("named", OTHER_DACS)
def test_a_checkpoint_is_not_resumed_with_another_dac(named, begun, twin, dac):
    with pytest.raises(CalibrationError, match=f"was begun with another {named}; resume" if "res" in named else named):
        resumed(begun, twin, OTHER_DACS[named](dac))


OTHER_SETTINGS = [
    {"inputs": 47}, {"settings": 2}, {"enough": 0.02}, {"checked": 41}, {"tolerance": 0.1}, {"rounds": 2},
    {"judged": 61}, {"memory": 9}, {"seed": 5},
]  # fmt: skip


@pytest.mark.parametrize("changes", OTHER_SETTINGS, ids=lambda changes: next(iter(changes)))
def test_a_checkpoint_is_not_resumed_with_other_settings(changes, begun, twin, dac):
    ((name, value),) = changes.items()
    with pytest.raises(CalibrationError, match=rf"another {name} \({getattr(QUICK, name)}, now {value}\); resume"):
        resumed(begun, twin, dac, settings=replace(QUICK, **changes))


def test_a_checkpoint_is_not_resumed_with_other_limits_or_doubts(begun, twin, dac):
    with pytest.raises(CalibrationError, match="another max_power_w; resume"):
        resumed(begun, twin, dac, limit=0.054)
    with pytest.raises(CalibrationError, match=r"another doubt.phase_rad \(0.1, now 0.2\), seed \(0, now 5\); resume"):
        resumed(begun, twin, dac, settings=replace(QUICK, doubt=TwinDoubt(phase_rad=0.2), seed=5))


def test_a_checkpoint_is_not_resumed_with_another_network_or_plan(begun, twin, dac):
    """Networks that round up and down have the same matrices, and other biases."""
    floor = tile(build_exact(4, 4, slope=8.0, rounding="floor"), 4)
    assert all((one.matrix == other.matrix).all() for one, other in zip(floor.tiles, NETWORK.tiles, strict=True))
    with pytest.raises(CalibrationError, match="another network; resume"):
        resumed(begun, twin, dac, plan=floor)
    layers = list(NETWORK.network.layers)
    layers[0] = replace(layers[0], slack=0.9 * layers[0].slack)
    with pytest.raises(CalibrationError, match="another network; resume"):
        resumed(begun, twin, dac, plan=replace(NETWORK, network=replace(NETWORK.network, layers=tuple(layers))))
    first = replace(NETWORK.tiles[0], row_scale=1.01 * NETWORK.tiles[0].row_scale)
    with pytest.raises(CalibrationError, match="another cut into tiles; resume"):
        resumed(begun, twin, dac, plan=replace(NETWORK, tiles=(first, *NETWORK.tiles[1:])))
    with pytest.raises(CalibrationError, match="another network, cut into tiles; resume"):
        resumed(begun, twin, dac, plan=CELL)


def test_a_checkpoint_is_not_resumed_with_another_twin(begun, twin, dac):
    heater = twin.layout.heaters[int(twin.layout.mesh_theta[0])]
    for changes in ({"offset": twin.offset + 1e-6}, {"gain": 1.01 * twin.gain}, {"stuck": (heater,)}):
        with pytest.raises(CalibrationError, match="another twin; resume"):
            resumed(begun, replace(twin, **changes), dac)


def test_a_checkpoint_is_resumed_with_what_it_was_begun_with(begun, twin, dac):
    """The same limits, heater by heater, and equal objects that are not the same ones."""
    again = tile(build_exact(4, 4, slope=8.0, rounding="half_up"), 4)
    found = resumed(begun, replace(twin), replace(dac), plan=again, limit=np.full(len(twin.offset), LIMIT_W))
    assert len(found.tiles) == len(NETWORK.tiles)
    assert found.after.wrong == 0


@pytest.mark.parametrize("value", [0.0, -0.03, np.nan, np.inf, 1e-12, True, "0.03", None])
def test_steps_are_voltages_above_zero(value, dac):
    with pytest.raises(CalibrationError, match=r"step_v \(V\) must be a number from 1e-09 to 1000, got .*; give"):
        replace(dac, step_v=value)


@pytest.mark.parametrize(
    ("name", "bad"),
    [("resistance_ohm", value) for value in (0.0, -1.0, np.nan, np.inf)]
    + [("beta_per_w", value) for value in (-1e-3, np.nan, np.inf)],
)
def test_resistance_laws_are_those_of_heaters(name, bad, dac):
    values = getattr(dac, name).copy()
    values[3] = bad
    with pytest.raises(CalibrationError, match=f"{name} .* of heater 3 must be finite and .*, got .*; take"):
        replace(dac, **{name: values})


def test_steps_and_limits_fit_the_heaters(twin, dac):
    with pytest.raises(CalibrationError, match=r"beta_per_w .* has shape"):
        replace(dac, beta_per_w=dac.beta_per_w[1:])
    with pytest.raises(CalibrationError, match="whole must be True or False, got 1"):
        replace(dac, whole=1)
    short = replace(dac, resistance_ohm=dac.resistance_ohm[1:], beta_per_w=dac.beta_per_w[1:])
    with pytest.raises(CalibrationError, match=f"resistance_ohm .* {len(twin.offset)} heaters need"):
        retrain(CELL, Perfect(), twin, short, QUICK)
    for limit in (np.nan, -0.01, [0.055], True, "0.055"):
        with pytest.raises(CalibrationError, match="max_power_w"):
            retrain(CELL, Perfect(), twin, dac, QUICK, max_power_w=limit)


@pytest.mark.parametrize("name", ["phase_rad", "coupler_rad", "efficiency", "crosstalk", "product"])
@pytest.mark.parametrize("value", [0.0, -0.1, np.nan, np.inf, 1e-200, 1e200, True, "0.1"])
def test_doubts_are_standard_deviations_above_zero(name, value):
    with pytest.raises(CalibrationError, match=f"{name} of a TwinDoubt must be a number from 1e-09 to 1000, got"):
        TwinDoubt(**{name: value})


@pytest.mark.parametrize("name", ["inputs", "settings", "checked", "rounds", "judged", "memory", "seed"])
@pytest.mark.parametrize("value", [-1, 2.5, True, np.nan, "3", None])
def test_counts_are_whole_numbers(name, value):
    with pytest.raises(CalibrationError, match=f"{name} must be a whole number of at least [01], got"):
        RetrainingSettings(**{name: value})


def test_counts_start_at_one():
    for name in ("inputs", "settings", "checked", "rounds", "judged", "memory"):
        with pytest.raises(CalibrationError, match=f"{name} must be a whole number of at least 1, got 0"):
            RetrainingSettings(**{name: 0})
    assert RetrainingSettings(seed=0, inputs=np.int64(3)).inputs == 3


@pytest.mark.parametrize("name", ["enough", "tolerance"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, np.nan, True, "0.1"])
def test_shares_lie_between_zero_and_one(name, value):
    with pytest.raises(CalibrationError, match=f"{name} must be a number from 1e-06 to 0.999999, got"):
        RetrainingSettings(**{name: value})


def test_a_doubt_is_a_twin_doubt():
    with pytest.raises(CalibrationError, match=r"doubt must be a TwinDoubt, got 0\.1"):
        RetrainingSettings(doubt=0.1)
