"""Anybody's arrays at the public analyses: numbers, or an error that names the argument; never a silent result."""

from decimal import Decimal
from functools import cache

import numpy as np
import pytest
from mesh_truths import NOISE as MESH_NOISE
from mesh_truths import measured, quiet, rough, truth
from test_calibration_ground import circuit

from calibration import (
    BenchProbe,
    MeshPosterior,
    NoiseModel,
    choose_settings,
    coherent_readings,
    compare_matrices,
    find_channels,
    find_extreme,
    find_input_phases,
    fit_common_ground,
    fit_mesh,
    fit_phase_curve,
    fit_resistance,
    generic_fields,
    matrix_figure,
    matrix_from_fields,
    matrix_from_generic_inputs,
    matrix_from_repeats,
    matrix_from_twin,
    matrix_from_two_port,
    plan_pairs,
    random_candidates,
    total_variation,
    twin_matrix,
)
from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError, MatrixError
from optinc_hw.photonics import TwinParameters

NOISE = NoiseModel(1e-3, 1e-6)
MATRIX = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3, 2)) @ [1.0, 1.0j])[0]
TWIN = TwinParameters.nominal(3, input_amplitude=1.0, lo_amplitude=1.0, inputs="ports", receivers="power")
HEATERS = len(TWIN.offset)
POWER = np.linspace(0.0, 0.06, 40)
PAIRS, PHASES = np.array([[0, 1], [1, 2]]), np.tile([0.0, 1.6, 3.2, 4.8], (2, 1))


@cache
def posterior():
    rng = np.random.default_rng(6)
    chip = truth(3, 6)
    data = measured(chip, 40, rng)
    fit = fit_mesh(data, rough(chip, rng), MESH_NOISE, quiet, rounds=1)
    found = MeshPosterior(fit, data, MESH_NOISE)
    return found, found.samples(6, rng, 4), data


def generic(count=30):
    fields = generic_fields(3, count, np.random.default_rng(1))
    return fields, np.abs(fields @ MATRIX.T) ** 2


def fringes():
    lit = np.zeros((2, 4, 3), complex)
    for pair, (first, second) in enumerate(PAIRS):
        lit[pair, :, first], lit[pair, :, second] = 1.0, np.exp(1j * PHASES[pair])
    return np.abs(lit @ MATRIX.T) ** 2


@cache
def arguments():
    """Every analysis with arrays that it takes."""
    fields, powers = generic()
    voltage, current = circuit(np.random.default_rng(5), [0, 0, 0], 1.0, 20)
    settings = np.random.default_rng(2).uniform(0.0, 0.03, (30, HEATERS))
    ohm = np.linspace(1.0, 6.0, 9)
    return {
        "fit_phase_curve": (fit_phase_curve, {"power_w": POWER, "detected_w": 1.0 + np.cos(200.0 * POWER)}, {}),
        "its range": (
            lambda **given: fit_phase_curve(POWER, 1.0 + np.cos(200.0 * POWER), **given),
            {"efficiency_range": np.array([100.0, 300.0])}, {},
        ),
        "its phase": (
            fit_phase_curve(POWER, 1.0 + np.cos(200.0 * POWER)).phase, {"power_w": POWER}, {"invalid": "kept"},
        ),
        "fit_resistance": (fit_resistance, {"current_a": ohm / 1200.0, "voltage_v": ohm}, {}),
        "fit_common_ground": (fit_common_ground, {"voltage_v": voltage, "current_a": current}, {}),
        "its groups": (
            lambda **given: fit_common_ground(voltage, current, **given), {"groups": np.array([0, 0, 0])}, {},
        ),
        "its potential": (fit_common_ground(voltage, current).potential, {"current_a": current}, {"invalid": "kept"}),
        "find_extreme": (
            lambda **given: find_extreme(lambda x: x**2, 0.5, tolerance=0.1, **given), {"limits": np.array([0.0, 1.0])},
            {},
        ),
        "find_input_phases": (
            lambda **given: find_input_phases(TWIN, noise=NOISE, **given),
            {"power_w": settings, "fields": fields, "readings_w": coherent_readings(TWIN, settings, fields)},
            {"complex": "fields", "invalid": "readings_w"},
        ),
        "coherent_readings": (
            lambda **given: coherent_readings(TWIN, **given), {"power_w": settings, "fields": fields},
            {"complex": "fields"},
        ),
        "matrix_from_fields": (
            lambda **given: matrix_from_fields(sigma=1e-3, **given), {"fields": fields, "outputs": fields @ MATRIX.T},
            {"complex": "fields outputs"},
        ),
        "matrix_from_repeats": (
            matrix_from_repeats, {"matrices": np.stack([MATRIX, MATRIX])}, {"complex": "matrices"},
        ),
        "matrix_from_twin": (lambda **given: matrix_from_twin(TWIN, **given), {"power_w": settings[0]}, {}),
        "twin_matrix": (lambda **given: twin_matrix(TWIN, **given), {"power_w": settings[0]}, {}),
        "matrix_from_two_port": (
            lambda **given: matrix_from_two_port(noise=NOISE, **given),
            {"single_w": np.abs(MATRIX.T) ** 2, "pairs": PAIRS, "phases": PHASES, "fringes_w": fringes()}, {},
        ),
        "matrix_from_generic_inputs": (
            lambda **given: matrix_from_generic_inputs(noise=NOISE, **given), {"fields": fields, "power_w": powers},
            {"complex": "fields"},
        ),
        "compare_matrices": (
            compare_matrices, {"measured": MATRIX, "expected": MATRIX}, {"complex": "measured expected"},
        ),
        "matrix_figure": (matrix_figure, {"measured": MATRIX, "expected": MATRIX}, {"complex": "measured expected"}),
        "total_variation": (total_variation, {"p": np.ones((2, 3)), "q": np.ones((2, 3))}, {}),
        "plan_pairs": (lambda **given: plan_pairs(noise=NOISE, **given), {"single_w": np.abs(MATRIX.T) ** 2}, {}),
        "random_candidates": (
            lambda **given: random_candidates(4, 3, max_total_power_w=1.0, rng=np.random.default_rng(0), **given),
            {"max_power_w": np.full(6, 0.02)}, {},
        ),
        "choose_settings": (
            lambda **given: choose_settings(posterior()[0], MESH_NOISE, count=2, **given),
            {"power_w": posterior()[2].power_w, "lit": posterior()[2].lit, "samples": posterior()[1]}, {},
        ),
    }  # fmt: skip


def spoiled(array):
    """The same numbers as what no analysis may take for numbers, by kind."""
    first = np.zeros(array.shape, dtype=bool)
    first.flat[0] = True
    rows = array.tolist()
    ragged = [*rows[:-1], [rows[-1]] * 2 if array.ndim == 1 else rows[-1][:-1]]
    objects = array.astype(object)
    objects.flat[0] = None
    return {
        "complex": array + 0j if array.dtype.kind != "c" else array.real > 0.0,
        "text": array.astype(str),
        "one text": "light",
        "bytes": array.astype(str).astype(bytes),
        "object": objects,
        "decimals": np.vectorize(lambda value: Decimal(float(value)), otypes=[object])(array.real),
        "ragged": ragged,
        "masked": np.ma.array(array, mask=first),
        "masked rows": [np.ma.array(row, mask=mask) for row, mask in zip(array, first, strict=True)],
        "masked text": np.ma.array(array.astype(str), mask=first),
        "truth": np.ones(array.shape, dtype=bool),
        "dates": np.zeros(array.shape, dtype="datetime64[s]"),
        "none": None,
        "a set": {1.0, 2.0},
        "empty": array[:0],
        "one number": 0.5,
        "one more dimension": np.stack([array] * 2)[None],
    }


NAMES = [
    "fit_phase_curve", "its range", "its phase", "fit_resistance", "fit_common_ground", "its groups", "its potential",
    "find_extreme", "find_input_phases", "coherent_readings", "matrix_from_fields", "matrix_from_repeats",
    "matrix_from_twin", "twin_matrix", "matrix_from_two_port", "matrix_from_generic_inputs", "compare_matrices",
    "matrix_figure", "total_variation", "plan_pairs", "random_candidates", "choose_settings",
]  # fmt: skip
SHAPES = ("empty", "one number", "one more dimension")
NAMED = ("complex", "text", "bytes", "object", "decimals", "ragged", "dates", "a set")
KINDS = [*NAMED, *SHAPES, "one text", "masked", "masked rows", "masked text", "truth", "none"]


def may_be(name, argument, kind, how):
    """Whether what is no number elsewhere has a meaning here."""
    kept = how.get("invalid") == "kept"
    if kind == "none":
        return argument in ("efficiency_range", "groups")
    if kind in SHAPES:
        return kept or (name == "total_variation" and kind == "empty")
    if kind in ("masked", "masked rows"):  # left out as NaN is
        return kept or name == "fit_phase_curve" or argument == how.get("invalid")
    return False


@pytest.mark.parametrize("name", NAMES)
def test_the_arrays_are_taken_as_they_are_and_as_lists(name):
    assert list(arguments()) == NAMES
    call, given, _ = arguments()[name]
    call(**given)
    call(**{argument: array.tolist() for argument, array in given.items()})
    call(**{argument: np.ma.array(array) for argument, array in given.items()})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_array_of_numbers_is_refused(name, kind):
    call, given, how = arguments()[name]
    for argument, array in given.items():
        if may_be(name, argument, kind, how):
            continue
        with pytest.raises((CalibrationError, MatrixError)) as caught:
            call(**given | {argument: spoiled(array)[kind]})
        assert argument in str(caught.value) or kind not in NAMED


@pytest.mark.parametrize("name", ["find_input_phases", "coherent_readings", "twin_matrix", "matrix_from_twin"])
def test_heaters_take_no_negative_power(name):
    call, given, _ = arguments()[name]
    power = given["power_w"].copy()
    power.flat[1] = -1e-3
    with pytest.raises(CalibrationError, match=r"power_w holds -0\.001 W"):
        call(**given | {"power_w": power})


def test_masked_readings_are_left_out_of_phase_curves_as_nan_is():
    readings = 1.0 + np.cos(200.0 * POWER)
    hit = np.zeros(len(POWER), dtype=bool)
    hit[[3, 11]] = True
    spoilt = np.where(hit, 77.0, readings)
    expected = fit_phase_curve(POWER, np.where(hit, np.nan, readings))
    found = fit_phase_curve(POWER, np.ma.array(spoilt, mask=hit))
    assert found.good
    assert found.efficiency == expected.efficiency
    assert fit_phase_curve(np.ma.array(np.where(hit, 9.0, POWER), mask=hit), readings).efficiency == pytest.approx(
        200.0
    )


def test_phase_curves_take_read_back_of_zero_and_no_negative_powers():
    readings = 1.0 + np.cos(200.0 * POWER)
    assert fit_phase_curve(POWER - 1e-5, readings).good
    with pytest.raises(CalibrationError, match=r"power_w holds -0\.03 W"):
        fit_phase_curve(POWER - 0.03, readings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generic_fields(0, 5, np.random.default_rng(0)), "ports"),
        (lambda: generic_fields(3, -1, np.random.default_rng(0)), "count"),
        (lambda: generic_fields(3.0, 5, np.random.default_rng(0)), "ports"),
        (lambda: generic_fields(3, True, np.random.default_rng(0)), "count"),
        (lambda: random_candidates("4", 3, np.ones(6), 1.0, np.random.default_rng(0)), "count"),
        (lambda: random_candidates(4, 0, np.ones(6), 1.0, np.random.default_rng(0)), "ports"),
        (lambda: random_candidates(4, 3, -np.ones(6), 1.0, np.random.default_rng(0)), "max_power_w"),
        (lambda: random_candidates(4, 3, np.ones(6), np.nan, np.random.default_rng(0)), "max_total_power_w"),
        (lambda: random_candidates(4, 3, np.ones(6), 1j, np.random.default_rng(0)), "max_total_power_w"),
        (lambda: plan_pairs(np.ones((3, 3)), NOISE, 0), "steps"),
        (lambda: plan_pairs(np.ones((3, 3)), NOISE, 4, 2.5), "most"),
        (lambda: matrix_from_fields(np.eye(3), np.eye(3), "1"), "sigma"),
        (lambda: matrix_from_fields(np.eye(3), np.eye(3), 1j), "sigma"),
        (lambda: matrix_from_generic_inputs(*generic(), NOISE, seed=-1), "seed"),
        (lambda: matrix_from_generic_inputs(*generic(), NOISE, held_out=2.0), "held_out"),
        (lambda: choose_settings(*choice(lit=3)), "ports must be 0 to 2"),
        (lambda: choose_settings(*choice(lit=-1)), "ports must be 0 to 2"),
        (lambda: choose_settings(*choice(count=2.0)), "cannot choose"),
        (lambda: choose_settings(*choice(count="2")), "cannot choose"),
    ],
)
def test_counts_ports_and_single_numbers_are_what_they_should_be(call, message):
    with pytest.raises(CalibrationError, match=message):
        call()


def choice(lit=0, count=2):
    found, samples, data = posterior()
    return found, MESH_NOISE, data.power_w, np.full(len(data.power_w), lit), count, samples


@pytest.mark.parametrize(
    "unusable", [[0] * 12, "none", np.zeros(11, bool), 1, np.ma.array([False] * 12, mask=[True] * 12)]
)
def test_unusable_channels_are_truth_values(unusable):
    with Bench.simulated(ports=4, seed=1, kind="mesh") as bench:
        law = np.full(12, 1200.0), np.zeros(12)
        probe = BenchProbe(bench, *law, np.zeros(4), lambda *_: None)
        with pytest.raises(CalibrationError, match="unusable"):
            find_channels(probe, NOISE, np.random.default_rng(0), unusable)
        assert probe.readings == 0
