"""Verdicts about input phases: coherent readings alone judge, whatever else lies among them."""

import numpy as np
import pytest
from test_calibration_matrix_inputs import NOISE, as_powers_left_it, bare_twin, pair_fields, take

from calibration import NoiseModel, coherent_readings, find_input_phases
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

PORTS = 3


@pytest.fixture(scope="module")
def case():
    """A twin, powers, fields and readings from which input phases are found well."""
    rng = np.random.default_rng(11)
    truth = bare_twin(PORTS, 11)
    return as_powers_left_it(truth, rng), *take(truth, 90, rng), truth


def with_single_inputs(case, count, where, rng):
    """The case with settings of one lit port put in at the places ``where`` of the order."""
    twin, power, fields, readings, truth = case
    more = rng.uniform(0.0, 0.04, (count, power.shape[1]))
    lit = np.eye(PORTS)[rng.integers(0, PORTS, count)].astype(complex)
    seen = coherent_readings(truth, more, lit)
    seen = seen + NOISE.sigma(seen) * rng.standard_normal(seen.shape)
    return (
        twin,
        np.insert(power, where, more, axis=0),
        np.insert(fields, where, lit, axis=0),
        np.insert(readings, where, seen, axis=0),
    )


def test_the_case_is_good(case):
    found = find_input_phases(*case[:4], NOISE)
    assert found.verdict == "good", found.reason
    assert found.chi == pytest.approx(1.0, abs=0.2)


def test_single_inputs_at_the_end_do_not_hide_wrong_coherent_readings(case):
    """The last fifth are single inputs, which any input phases predict; the coherent ones are those of no chip."""
    rng = np.random.default_rng(0)
    twin, power, fields, readings = with_single_inputs(case, 60, np.full(60, 90), rng)
    readings[:90] = rng.permutation(readings[:90])
    found = find_input_phases(twin, power, fields, readings, NOISE)
    assert found.verdict == "poor"
    assert found.held_out_chi > 1.5
    assert found.chi > 2.0
    assert "coherent readings are missed" in found.reason


def test_single_inputs_among_the_others_change_no_verdict_figure(case):
    """A thousand readings that tell nothing of input phases: the figures are those of the coherent ones."""
    rng = np.random.default_rng(1)
    alone = find_input_phases(*case[:4], NOISE)
    mixed = find_input_phases(*with_single_inputs(case, 300, np.sort(rng.integers(0, 91, 300)), rng), NOISE)
    assert mixed.verdict == "good", mixed.reason
    assert mixed.before_chi == pytest.approx(alone.before_chi, rel=0.01)
    assert mixed.chi == pytest.approx(alone.chi, rel=0.05)


def test_light_that_meets_nowhere_is_not_coherent(case):
    """Two ports lit, but one of them with a millionth: no reading depends on a phase by more than its noise."""
    twin, power, fields, readings, _ = case
    fields = np.full_like(fields, 1e-6)
    fields[:, 0] = 1.0
    with pytest.raises(CalibrationError, match=r"0 valid readings .* beats .* do not determine 2 input phases"):
        find_input_phases(twin, power, fields, readings, NOISE)


def test_held_out_readings_that_happen_to_fit_do_not_hide_that_the_others_do_not(case):
    """One reading of the first setting is off by ten times the noise of a bright one."""
    twin, power, fields, readings, _ = case
    wrong = readings.copy()
    wrong[0, 0] += 0.01
    found = find_input_phases(twin, power, fields, wrong, NOISE)
    assert found.held_out_chi < 1.5
    assert found.chi > 2.0
    assert found.verdict == "poor"
    assert "fitted coherent readings are missed" in found.reason


@pytest.mark.parametrize("level", [0.0, 0.3])
def test_readings_that_are_all_equal_are_poor(case, level):
    twin, power, fields, readings, _ = case
    found = find_input_phases(twin, power, fields, np.full_like(readings, level), NOISE)
    assert found.verdict == "poor"


def test_noise_that_hides_every_beat_is_refused(case):
    twin, power, fields, readings, _ = case
    with pytest.raises(CalibrationError, match="beats by more than the noise"):
        find_input_phases(twin, power, fields, readings, NoiseModel(0.001, 1e3))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, "masked"])
def test_invalid_readings_of_every_kind_are_left_out_alike(case, value):
    twin, power, fields, readings, _ = case
    hit = np.random.default_rng(2).random(readings.shape) < 0.1
    expected = find_input_phases(twin, power, fields, np.where(hit, np.nan, readings), NOISE)
    broken = np.ma.array(readings, mask=hit) if value == "masked" else np.where(hit, value, readings)
    found = find_input_phases(twin, power, fields, broken, NOISE)
    assert found.verdict == expected.verdict == "good"
    np.testing.assert_array_equal(found.offset, expected.offset)
    assert (found.chi, found.held_out_chi) == (expected.chi, expected.held_out_chi)


def test_equal_powers_tell_the_phases_there_and_nothing_of_heat():
    rng = np.random.default_rng(3)
    truth = bare_twin(PORTS, 3)
    twin = as_powers_left_it(truth, rng)
    power = np.tile(rng.uniform(0.0, 0.03, len(truth.offset)), (60, 1))
    fields = take(truth, 60, rng)[1]
    readings = coherent_readings(truth, power, fields)
    readings = readings + NOISE.sigma(readings) * rng.standard_normal(readings.shape)
    found = find_input_phases(twin, power, fields, readings, NOISE)
    assert found.verdict == "partial"
    assert "nothing of the heat on the inputs" in found.reason
    assert "vary the powers of all heaters" in found.reason
    assert found.mean_sigma.max() < 0.01
    told = coherent_readings(found.twin, power, fields)
    assert np.sqrt(np.mean(((told - readings) / NOISE.sigma(told)) ** 2)) < 1.3
    heat = np.sqrt(np.diagonal(found.covariance)[PORTS - 1 :]).reshape(PORTS - 1, -1)[:, : len(found.heaters)]
    assert heat.max() > 1e-3  # no narrower than what is known beforehand


def test_pairs_of_inputs_are_coherent_where_both_arrive(case):
    rng = np.random.default_rng(4)
    truth = case[4]
    twin = as_powers_left_it(truth, rng)
    found = find_input_phases(twin, *take(truth, 200, rng, pair_fields(PORTS, 200, rng)), NOISE)
    assert found.verdict == "good", found.reason


@pytest.mark.parametrize("seed", [-1, 0.5, True, "0", None])
def test_a_seed_is_a_whole_number(case, seed):
    with pytest.raises(CalibrationError, match="seed must be a whole number"):
        find_input_phases(*case[:4], NOISE, seed=seed)


BAD = {
    "scalar power": {"power_w": 0.01}, "scalar fields": {"fields": 1.0}, "vector of powers": {"power_w": np.zeros(6)},
    "negative power": {"power_w": -1.0}, "masked power": {"power_w": np.ma.masked}, "text": {"fields": "1+1j"},
    "fields of too many ports": {"fields": np.ones((90, PORTS + 1))}, "objects": {"power_w": [[None] * 6] * 90},
    "complex powers": {"power_w": np.zeros((90, 6), complex)}, "Inf in powers": {"power_w": np.inf},
    "ragged": {"fields": [[1.0], [1.0, 2.0]]}, "truth values": {"fields": np.ones((90, PORTS), bool)},
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_setting_is_refused_by_name(case, name):
    twin, power, fields, readings, _ = case
    ((key, value),) = BAD[name].items()
    settings = {"power_w": power, "fields": fields}
    if name in ("negative power", "masked power", "Inf in powers"):
        broken = np.ma.array(power, copy=True)
        broken[3, 2] = value
        value = broken
    settings[key] = value
    for call in (coherent_readings, lambda *args: find_input_phases(*args, readings, NOISE)):
        with pytest.raises(CalibrationError, match=key.split("_", maxsplit=1)[0]):
            call(twin, *settings.values())


@pytest.mark.parametrize("readings", [0.1, np.ones(90), np.ones((90, PORTS), complex), "dark", [["0.1"] * PORTS] * 90])
def test_what_are_no_readings_is_refused_by_name(case, readings):
    twin, power, fields, _, _ = case
    with pytest.raises(CalibrationError, match="readings"):
        find_input_phases(twin, power, fields, readings, NOISE)


def test_chips_with_modulators_have_no_coherent_readings():
    twin = TwinParameters.nominal(PORTS, input_amplitude=1.0, lo_amplitude=1.0)
    with pytest.raises(CalibrationError, match="without modulators"):
        coherent_readings(twin, np.zeros((2, len(twin.offset))), np.ones((2, PORTS)))


def test_ports_that_are_all_dark_tell_nothing():
    twin = TwinParameters.nominal(2, input_amplitude=1.0, lo_amplitude=1.0, inputs="ports", receivers="power")
    dark = np.zeros((9, 2), complex)
    with pytest.raises(CalibrationError, match="0 valid readings"):
        find_input_phases(twin, np.zeros((9, len(twin.offset))), dark, np.zeros((9, 2)), NOISE)


def test_one_setting_leaves_none_to_judge_by(case):
    twin, power, fields, readings, _ = case
    with pytest.raises(CalibrationError, match="do not determine"):
        find_input_phases(twin, power[:1], fields[:1], readings[:1], NOISE)
    pair = bare_twin(2, 0)
    power, fields, readings = take(pair, 1, np.random.default_rng(0))
    with pytest.raises(CalibrationError, match="of one setting"):
        find_input_phases(pair, power, fields, readings, NOISE)
