"""Complex matrices from powers alone and from fields: right within the stated uncertainty, or refused with a reason."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares
from scipy.stats import unitary_group

from calibration import NoiseModel
from calibration._matrix_compare import compare_matrices
from calibration._matrix_pairs import plan_pairs
from calibration._matrix_retrieval import fewest_inputs, generic_fields, matrix_from_generic_inputs
from calibration._matrix_sources import matrix_from_fields, matrix_from_repeats, matrix_from_twin
from calibration._matrix_two_port import ideal_fields, matrix_from_two_port
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

NOISE = NoiseModel(1e-3, 1e-6)
SEEDS = st.integers(0, 2**32 - 1)


def lossy(n, rng):
    """A Haar matrix with losses of up to 2 dB at every output and input: not unitary at all."""
    unitary = np.atleast_2d(unitary_group.rvs(n, random_state=rng)) if n > 1 else np.ones((1, 1))
    return np.exp(-0.23 * rng.random(n))[:, None] * unitary * np.exp(-0.23 * rng.random(n))


def read(matrix, fields, rng, noise=NOISE):
    power = np.abs(fields @ matrix.T) ** 2
    return power + noise.sigma(power) * rng.standard_normal(power.shape)


def two_port_data(matrix, rng, steps=4, most=None, noise=NOISE):
    """What `matrix_from_two_port` takes: single powers, pairs, phases, fringes."""
    n = matrix.shape[1]
    single = read(matrix, np.eye(n), rng, noise)
    pairs = plan_pairs(single, noise, steps, most)
    phases = np.tile(2 * np.pi * np.arange(steps) / steps, (len(pairs), 1)) + 0.3
    fringes = read(matrix, ideal_fields(n, pairs, phases)[n:], rng, noise).reshape(len(pairs), steps, len(matrix))
    return single, pairs, phases, fringes


def errors_over_sigma(found, truth):
    """Errors along and across the sure elements over their standard deviations, free phases matched."""
    sure = found.sigma.max(axis=-1) < 0.1
    seen = compare_matrices(found.matrix * sure, truth * sure, gauge=found.gauge, normalise="none")
    along = (seen.error * np.exp(-1j * np.angle(truth)))[sure]
    return np.stack([along.real, along.imag], axis=-1) / np.maximum(found.sigma[sure], 1e-12), seen


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 16])
def test_two_ports_at_a_time_give_any_lossy_matrix_from_2n_minus_1_configurations(n):
    rng = np.random.default_rng(n)
    truth = lossy(n, rng)
    data = two_port_data(truth, rng)
    assert len(data[1]) == n - 1
    found = matrix_from_two_port(*data, NOISE)
    seen = errors_over_sigma(found, truth)[1]
    assert (found.verdict, found.gauge) == ("good", "ports")
    assert seen.residual < 2e-3
    if n > 3:
        assert found.chi == pytest.approx(1.0, abs=0.35)
        assert seen.conjugate_fidelity < 0.95


def test_stated_uncertainties_are_those_of_the_errors():
    deviations = {"pairs": [], "generic": []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        truth = lossy(5, rng)
        found = matrix_from_two_port(*two_port_data(truth, rng), NOISE, gauge="outputs")
        deviations["pairs"].append(errors_over_sigma(found, truth)[0])
        fields = generic_fields(5, 32, rng)
        found = matrix_from_generic_inputs(fields, read(truth, fields, rng), NOISE)
        deviations["generic"].append(errors_over_sigma(found, truth)[0])
    for name, values in deviations.items():
        flat = np.concatenate(values).ravel()
        assert np.sqrt(np.mean(flat**2)) == pytest.approx(1.0, abs=0.12), name
        assert np.mean(np.abs(flat) < 1.0) == pytest.approx(0.683, abs=0.06), name
        assert np.mean(np.abs(flat) < 2.0) == pytest.approx(0.954, abs=0.03), name


@pytest.mark.parametrize("kind", ["permutation", "identity", "blocks", "sparse"])
def test_dark_elements_need_no_more_pairs_than_the_phases_that_exist(kind):
    rng = np.random.default_rng(7)
    truth = lossy(6, rng)
    if kind == "permutation":
        truth = np.eye(6)[rng.permutation(6)] * np.exp(2j * np.pi * rng.random(6))
    if kind == "identity":
        truth = np.eye(6, dtype=complex)
    if kind == "blocks":
        truth[:3, 3:] = truth[3:, :3] = 0.0
    if kind == "sparse":
        truth = truth * (rng.random((6, 6)) < 0.6)
    data = two_port_data(truth, rng)
    found = matrix_from_two_port(*data, NOISE)
    assert found.verdict == "good", found.reason
    assert errors_over_sigma(found, truth)[1].residual < 5e-3
    assert len(data[1]) == 5 or kind == "sparse"


def test_the_reference_input_is_one_that_lights_every_output():
    rng = np.random.default_rng(3)
    truth = lossy(5, rng)
    truth[2, 0] = truth[3, 1] = truth[4, 2] = truth[0, 3] = 0.0
    pairs = plan_pairs(np.abs(truth.T) ** 2, NOISE)
    assert len(pairs) == 4
    assert (pairs == 4).any(axis=1).all()


def test_a_phase_that_no_pair_shows_is_unknown_not_guessed():
    rng = np.random.default_rng(5)
    truth = lossy(3, rng)
    truth[1, 0] = 0.0  # the star around input 0 says nothing about output 1
    pairs, steps = np.array([[0, 1], [0, 2]]), 4
    phases = np.tile(2 * np.pi * np.arange(steps) / steps, (2, 1))
    single = read(truth, np.eye(3), rng)
    fringes = read(truth, ideal_fields(3, pairs, phases)[3:], rng).reshape(2, steps, 3)
    found = matrix_from_two_port(single, pairs, phases, fringes, NOISE)
    assert found.verdict == "partial"
    assert "phases of elements (1, 1), (1, 2) are known worse" in found.reason
    assert found.sigma[1, 1:, 0].max() < 1e-2
    assert found.sigma[[0, 2]].max() < 1e-2


def test_light_that_leaks_from_closed_inputs_is_no_error_if_it_is_told():
    rng = np.random.default_rng(9)
    truth, n = lossy(6, rng), 6
    single_fields = np.eye(n, dtype=complex) + 0.03 * np.exp(2j * np.pi * rng.random((n, n)))
    pairs = np.array([[0, i] for i in range(1, n)])
    phases = np.tile(2 * np.pi * np.arange(6) / 6, (n - 1, 1))
    pair_fields = ideal_fields(n, pairs, phases)[n:]
    pair_fields = np.where(pair_fields == 0.0, 0.03 * np.exp(2j * np.pi * rng.random(n)), pair_fields)
    fields = np.concatenate([single_fields, pair_fields])
    power = read(truth, fields, rng)
    data = (power[:n], pairs, phases, power[n:].reshape(n - 1, 6, n), NOISE)
    told = matrix_from_two_port(*data, fields=fields, gauge="outputs")
    untold = matrix_from_two_port(*data)
    assert told.verdict == "good"
    assert compare_matrices(told.matrix, truth, "outputs", "none").residual < 2e-3
    assert untold.verdict == "poor"


def test_partially_coherent_light_is_named():
    rng = np.random.default_rng(1)
    truth = lossy(4, rng)
    single, pairs, phases, fringes = two_port_data(truth, rng)
    dull = 0.8 * fringes + 0.2 * fringes.mean(axis=1, keepdims=True)
    found = matrix_from_two_port(single, pairs, phases, dull, NOISE)
    assert found.verdict == "poor"
    assert "visibility of the fringes of inputs" in found.reason
    assert "(0.8" in found.reason or "(0.79" in found.reason


def test_the_direction_of_the_phase_excludes_the_complex_conjugate():
    rng = np.random.default_rng(2)
    truth = lossy(4, rng)
    single, pairs, phases, fringes = two_port_data(truth, rng)
    wrong = compare_matrices(matrix_from_two_port(single, pairs, -phases, fringes, NOISE).matrix, truth)
    assert wrong.conjugate_fidelity > 0.9999 > wrong.fidelity
    with pytest.raises(CalibrationError, match="complex conjugate"):
        matrix_from_two_port(single, pairs, np.tile([0.0, np.pi, 2 * np.pi, np.pi], (3, 1)), fringes, NOISE)
    fields = (
        rng.standard_normal((40, 4)) * np.exp(2j * np.pi * rng.random(4)) * np.exp(2j * np.pi * rng.random((40, 1)))
    )
    with pytest.raises(CalibrationError, match="complex conjugate"):
        matrix_from_generic_inputs(fields, read(truth, fields, rng), NOISE)


@given(st.integers(1, 7), st.integers(0, 3), SEEDS)
@settings(max_examples=12, deadline=None)
def test_generic_inputs_little_above_their_least_number_give_the_one_matrix(n, more, seed):
    rng = np.random.default_rng(seed)
    truth = lossy(n, rng)
    fields = generic_fields(n, fewest_inputs(n) + 2 + more * n, rng)
    found = matrix_from_generic_inputs(fields, read(truth, fields, rng), NOISE)
    seen = compare_matrices(found.matrix, truth, "outputs", "none")
    assert found.gauge == "outputs"
    if found.verdict == "good":
        assert seen.residual < 0.03
    else:
        assert found.reason
    if more >= 2 or n == 1:
        assert found.verdict == "good", found.reason


def test_generic_inputs_at_twelve_ports_with_a_dark_output():
    rng = np.random.default_rng(0)
    truth = lossy(12, rng)
    truth[3] = 0.0
    fields = generic_fields(12, 66, rng)
    found = matrix_from_generic_inputs(fields, read(truth, fields, rng), NOISE)
    assert found.verdict == "good", found.reason
    assert compare_matrices(found.matrix, truth, "outputs", "none").residual < 2e-3


def test_phase_retrieval_ends_where_scipy_does():
    rng = np.random.default_rng(8)
    truth = lossy(4, rng)
    fields = generic_fields(4, 24, rng)
    power = read(truth, fields, rng)
    found = matrix_from_generic_inputs(fields, power, NOISE)
    row, sigma = found.matrix[1], NOISE.sigma(np.abs(fields @ found.matrix[1]) ** 2)

    def residual(parts):
        return (np.abs(fields @ (parts[:4] + 1j * parts[4:])) ** 2 - power[:, 1]) / sigma

    best = least_squares(residual, np.concatenate([truth[1].real, truth[1].imag]), xtol=1e-14, ftol=1e-14, gtol=1e-14)
    other = best.x[:4] + 1j * best.x[4:]
    assert abs(np.vdot(other, row)) / np.linalg.norm(other) == pytest.approx(np.linalg.norm(row), rel=1e-9)


def test_readings_that_no_matrix_explains_are_refused():
    rng = np.random.default_rng(4)
    truth = lossy(4, rng)
    fields = generic_fields(4, 30, rng)
    power = read(truth, fields, rng)
    power[:, 2] = np.abs(fields @ lossy(4, rng)[2]) ** 2 + power[:, 2]  # two fields that do not interfere
    found = matrix_from_generic_inputs(fields, power, NOISE)
    assert found.verdict == "poor"
    assert "held-out readings of outputs 2 are missed" in found.reason


def test_fields_give_the_matrix_itself():
    rng = np.random.default_rng(6)
    truth, sigma = lossy(5, rng), 1e-3
    fields = generic_fields(5, 20, rng)
    outputs = fields @ truth.T + sigma * (rng.standard_normal((20, 5)) + 1j * rng.standard_normal((20, 5)))
    found = matrix_from_fields(fields, outputs, sigma)
    assert (found.verdict, found.gauge) == ("good", "none")
    error = (found.matrix - truth) / found.sigma[..., 0]
    assert np.sqrt(np.mean(np.abs(error) ** 2) / 2) == pytest.approx(1.0, abs=0.25)
    assert matrix_from_fields(fields, outputs + 0.1 * fields[:, ::-1].conj(), sigma).verdict == "poor"


def test_repeats_and_posterior_samples_give_mean_and_scatter():
    rng = np.random.default_rng(2)
    truth = lossy(4, rng)
    noise = 2e-3 * (rng.standard_normal((40, 4, 4)) + 1j * rng.standard_normal((40, 4, 4)))
    turned = np.exp(2j * np.pi * rng.random((40, 4, 1))) * (truth + noise) * np.exp(2j * np.pi * rng.random((40, 1, 4)))
    found = matrix_from_repeats(turned)
    assert found.verdict == "good"
    assert np.median(found.sigma) == pytest.approx(2e-3 / np.sqrt(40), rel=0.2)
    assert compare_matrices(found.matrix, truth).residual < 3e-3
    twin = TwinParameters.nominal(4, input_amplitude=1.0, lo_amplitude=1.0, inputs="ports", receivers="power")
    one = matrix_from_twin(twin, np.zeros(len(twin.offset)))
    assert (one.verdict, one.gauge) == ("partial", "ports")
    same = matrix_from_twin([twin, twin], np.zeros(len(twin.offset)))
    assert same.sigma == pytest.approx(0.0, abs=1e-12)
    assert np.abs(same.matrix) == pytest.approx(np.eye(4)[::-1], abs=1e-12)  # all MZIs in cross


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan_pairs(np.full((2, 2), np.nan), NOISE), "finite"),
        (lambda: plan_pairs(np.ones((3, 3)), NOISE, most=1), "connected by 2 pairs"),
        (lambda: matrix_from_two_port(np.ones((2, 2)), [[0, 0]], [[0, 1, 2]], np.ones((1, 3, 2)), NOISE), "different"),
        (lambda: matrix_from_two_port(np.ones((2, 2)), [[0, 1]], [[0, 1]], np.ones((1, 2, 2)), NOISE), "3 different"),
        (
            lambda: matrix_from_two_port(np.ones((2, 2)), [[0, 1]], [[0, 1, 2]], np.ones((1, 2, 2)), NOISE),
            "fit together",
        ),
        (lambda: matrix_from_generic_inputs(np.ones((9, 3)), np.ones((9, 1)), NOISE), "8 are needed"),
        (lambda: matrix_from_generic_inputs(np.ones((20, 3)), np.ones((20, 1)), NOISE), "span all ports"),
        (lambda: matrix_from_generic_inputs(np.ones((20, 3)), np.ones((19, 1)), NOISE), "one row"),
        (lambda: matrix_from_fields(np.ones((2, 3)), np.ones((2, 3)), 1.0), "span all ports"),
        (lambda: matrix_from_repeats(np.ones((1, 2, 2))), "at least two"),
    ],
)
def test_data_that_cannot_determine_a_matrix_are_refused(call, message):
    with pytest.raises(CalibrationError, match=message):
        call()
