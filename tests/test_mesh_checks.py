"""Data that are none of the chip's are refused by name wherever fits of bare meshes begin, and lists are arrays."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from calibration import (
    MeshData,
    MeshPosterior,
    choose_settings,
    correct_drift,
    cross_validate,
    effect_asked_for,
    effects_found,
    fit_mesh,
    held_out,
    identifiability,
    predict,
    random_candidates,
    refit,
)
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters
from tests.mesh_truths import NOISE, exact, measured, nominal, quiet, rough, truth

PORTS, HEATERS, ROWS = 3, 6, 60


@cache
def fitted():
    rng = np.random.default_rng(4)
    chip = truth(PORTS, 4)
    data = measured(chip, ROWS, rng)
    fit = fit_mesh(data, rough(chip, rng), NOISE, quiet, rounds=0)
    posterior = MeshPosterior(fit, data, NOISE)
    return chip, fit, data, posterior, posterior.samples(6, rng)


def chosen(power_w, lit, _readings_w):
    _, _, _, posterior, samples = fitted()
    return choose_settings(posterior, NOISE, power_w, lit, 2, samples)


def sure(power_w, lit, _readings_w):
    _, _, _, posterior, samples = fitted()
    return posterior.predictive_sigma(samples, power_w, lit)


def rng():
    return np.random.default_rng(0)


SETTINGS = {
    "predict": lambda power_w, lit, _: predict(fitted()[0], power_w, lit),
    "choose_settings": chosen,
    "predictive_sigma": sure,
}
READINGS = {
    "fit_mesh": lambda *data: fit_mesh(MeshData(*data), nominal(PORTS), NOISE, quiet, rounds=0),
    "refit": lambda *data: refit(fitted()[1], MeshData(*data), NOISE, quiet, rounds=0),
    "held_out": lambda *data: held_out(fitted()[0], MeshData(*data), NOISE),
    "cross_validate": lambda *data: cross_validate(MeshData(*data), nominal(PORTS), NOISE, 2, rng()),
    "correct_drift": lambda *data: correct_drift(MeshData(*data), fitted()[0], NOISE, quiet),
    "effects_found": lambda *data: effects_found(fitted()[1], MeshData(*data), NOISE),
    "effect_asked_for": lambda *data: effect_asked_for(fitted()[1], MeshData(*data), NOISE, "eta"),
    "identifiability": lambda *data: identifiability(fitted()[1], MeshData(*data), NOISE),
    "MeshPosterior": lambda *data: MeshPosterior(fitted()[1], MeshData(*data), NOISE),
}
ENTRIES = SETTINGS | READINGS


def put(values, value, where=(7,)):
    changed = np.array(values)
    changed[where] = value
    return changed


BAD_SETTINGS = {
    "lit = n": (lambda p, k: (p, put(k, PORTS)), "row 7"),
    "lit = -1": (lambda p, k: (p, put(k, -1)), "row 7"),
    "lit beyond 64 bits": (lambda p, k: (p, k.astype(np.uint64) + np.uint64(2**63)), "lit ports"),
    "float ports": (lambda p, k: (p, k.astype(float)), "lit ports"),
    "bool ports": (lambda p, k: (p, k > 0), "lit ports"),
    "text ports": (lambda p, k: (p, k.astype(str)), "lit ports"),
    "ports with an axis more": (lambda p, k: (p, k[:, None]), "lit ports"),
    "one port for all": (lambda p, _: (p, 1), "lit ports"),
    "masked ports": (lambda p, k: (p, np.ma.masked_equal(k, 1)), "masked"),
    "NaN power": (lambda p, k: (put(p, np.nan, (7, 2)), k), "mzi_.* in row 7 is nan W"),
    "Inf power": (lambda p, k: (put(p, np.inf, (7, 2)), k), "mzi_.* in row 7 is inf W"),
    "negative power": (lambda p, k: (put(p, -1e-3, (7, 2)), k), "mzi_.* in row 7 is -0.001 W"),
    "complex power": (lambda p, k: (p + 0j, k), "heater powers"),
    "text power": (lambda p, k: (p.astype(str), k), "heater powers"),
    "missing power": (lambda p, k: (np.array(p, dtype=object), k), "heater powers"),
    "masked power": (lambda p, k: (np.ma.masked_less(p, 0.01), k), "masked"),
    "ragged power": (lambda p, k: ([list(row[: 2 + row_number % 2]) for row_number, row in enumerate(p)], k), "powers"),
    "powers of one heater fewer": (lambda p, k: (p[:, 1:], k), "shape"),
    "powers of a larger chip": (lambda p, k: (np.concatenate([p, p], axis=1), k), "shape"),
    "a row fewer": (lambda p, k: (p[1:], k), "shape"),
    "one setting without rows": (lambda p, k: (p[0], k), "shape"),
}  # fmt: skip
BAD_READINGS = {
    "readings of another chip": (lambda r: np.concatenate([r, r], axis=1), "shape"),
    "a row fewer": (lambda r: r[1:], "shape"),
    "one row for all": (lambda r: r[0], "shape"),
    "complex readings": (lambda r: r + 0j, "readings"),
    "text readings": (lambda r: r.astype(str), "readings"),
    "masked readings": (lambda r: np.ma.masked_less(r, 0.1), "masked"),
}


@pytest.mark.parametrize("bad", BAD_SETTINGS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_settings_that_no_chip_has_are_refused(entry, bad):
    data = fitted()[2]
    change, message = BAD_SETTINGS[bad]
    with pytest.raises(CalibrationError, match=message):
        ENTRIES[entry](*change(data.power_w, data.lit), data.readings_w)


@pytest.mark.parametrize("bad", BAD_READINGS)
@pytest.mark.parametrize("entry", READINGS)
def test_readings_that_are_none_of_the_settings_are_refused(entry, bad):
    data = fitted()[2]
    change, message = BAD_READINGS[bad]
    with pytest.raises(CalibrationError, match=message):
        READINGS[entry](data.power_w, data.lit, change(data.readings_w))


@pytest.mark.parametrize("entry", sorted(READINGS.keys() - {"identifiability"}))
def test_readings_none_of_which_is_valid_are_refused(entry):
    data = fitted()[2]
    with pytest.raises(CalibrationError, match="valid"):
        READINGS[entry](data.power_w, data.lit, np.full_like(data.readings_w, np.nan))


@pytest.mark.parametrize("entry", sorted(ENTRIES.keys() - {"predict"}))
def test_no_readings_at_all_are_refused(entry):
    with pytest.raises(CalibrationError, match=r"no |0 |cannot"):
        ENTRIES[entry](np.empty((0, HEATERS)), np.empty(0, dtype=int), np.empty((0, PORTS)))


def test_of_no_settings_nothing_is_predicted():
    assert predict(fitted()[0], np.empty((0, HEATERS)), np.empty(0, dtype=int)).shape == (0, PORTS)


@pytest.mark.parametrize("entry", ENTRIES)
def test_data_of_a_chip_of_other_ports_are_refused(entry):
    other = measured(truth(4, 0), ROWS, rng())
    with pytest.raises(CalibrationError, match="chip"):
        ENTRIES[entry](other.power_w, other.lit, other.readings_w)


def test_lists_of_numbers_are_arrays():
    chip, _, data, _, _ = fitted()
    listed = MeshData(data.power_w.tolist(), data.lit.tolist(), data.readings_w.tolist())
    assert listed.take(slice(0, 5)).joined(listed).power_w.shape == (ROWS + 5, HEATERS)
    told = predict(chip, data.power_w.tolist(), data.lit.astype(np.uint8))
    np.testing.assert_allclose(told, exact(chip, data.power_w, data.lit), rtol=1e-9)
    assert held_out(chip, listed, NOISE) == held_out(chip, data, NOISE)


def test_data_of_two_chips_are_not_joined():
    with pytest.raises(CalibrationError, match="one chip"):
        fitted()[2].joined(measured(truth(4, 0), 3, rng()))


def test_something_else_than_readings_is_named():
    with pytest.raises(CalibrationError, match=r"MeshData, got tuple"):
        held_out(fitted()[0], (1, 2, 3), NOISE)


def test_a_twin_of_modulators_and_homodyne_receivers_predicts_no_powers_of_ports():
    other = TwinParameters.nominal(PORTS, input_amplitude=1.0, lo_amplitude=1.0)
    with pytest.raises(CalibrationError, match="bare mesh"):
        predict(other, np.zeros((1, len(other.offset))), np.array([0]))


def test_predictions_beyond_all_numbers_are_an_error():
    power_w = np.zeros((3, HEATERS))
    power_w[1] = 1e308
    with pytest.raises(CalibrationError, match=r"not finite in row 1 \(1 of 3 rows\).*up to 1e\+308 W"):
        predict(fitted()[0], power_w, np.array([0, 1, 2]))


def test_fits_of_other_readings_are_told():
    """A fit that left reading 50 out has not seen these 20."""
    _, fit, data, _, _ = fitted()
    other = replace(fit, spoilt=np.array([50]))
    for judge in (MeshPosterior, effects_found):
        with pytest.raises(CalibrationError, match=r"reading 50.* 20 rows"):
            judge(other, data.take(slice(0, 20)), NOISE)


@pytest.mark.parametrize(
    "samples", [np.empty((0, 3)), np.zeros((2, 3)), np.zeros(5), np.full((2, 200), np.nan), "three", None]
)
def test_samples_of_another_fit_are_refused(samples):
    _, fit, data, posterior, good = fitted()
    samples = np.full_like(good, np.nan) if np.shape(samples) == (2, 200) else samples
    with pytest.raises(CalibrationError, match="posterior samples"):
        choose_settings(posterior, NOISE, data.power_w, data.lit, 2, samples)
    with pytest.raises(CalibrationError, match="posterior samples"):
        posterior.heater_sigmas(samples)
    assert fit.space.size == good.shape[1]


@pytest.mark.parametrize("index", [-1, 10**6, 1.5, True])
def test_covariances_are_those_of_entries_of_the_vector(index):
    with pytest.raises(CalibrationError, match="index"):
        fitted()[3].covariance([0, index])


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "2", ROWS + 1])
def test_a_number_of_settings_that_cannot_be_chosen(count):
    _, _, data, posterior, samples = fitted()
    with pytest.raises(CalibrationError, match="candidates"):
        choose_settings(posterior, NOISE, data.power_w, data.lit, count, samples)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": -1}, "count"), ({"count": 2.5}, "count"), ({"count": True}, "count"), ({"ports": 0}, "ports"),
        ({"max_power_w": np.full(HEATERS, np.nan)}, "heater 0"), ({"max_power_w": np.full(HEATERS, -1.0)}, "heater 0"),
        ({"max_power_w": np.ones((2, 3))}, "shape"), ({"max_power_w": 1.0}, "shape"),
        ({"max_total_power_w": 0.0}, "total"), ({"max_total_power_w": np.nan}, "total"),
    ],
)  # fmt: skip
def test_candidates_need_limits(change, message):
    limits = {"count": 3, "ports": PORTS, "max_power_w": np.ones(HEATERS), "max_total_power_w": 1.0}
    with pytest.raises(CalibrationError, match=message):
        random_candidates(**limits | change, rng=rng())


def test_no_candidates_are_none():
    power_w, lit = random_candidates(0, PORTS, np.ones(HEATERS), 1.0, rng())
    assert power_w.shape == (0, HEATERS)
    assert lit.shape == (0,)
