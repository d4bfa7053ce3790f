"""Comparison of matrices up to free phases, distances of distributions, and verdicts about matrices."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import unitary_group

from calibration._matrix import judge, rms_element, total_variation
from calibration._matrix_compare import compare_matrices
from calibration._matrix_figures import matrix_figure
from optinc_hw.errors import MatrixError
from optinc_hw.photonics import fidelity

SEEDS = st.integers(0, 2**32 - 1)


def unitary(n, seed):
    return np.atleast_2d(unitary_group.rvs(n, random_state=seed)) if n > 1 else np.array([[np.exp(1j * seed)]])


def screens(matrix, rng):
    rows, columns = (np.exp(2j * np.pi * rng.random(size)) for size in matrix.shape)
    return rows[:, None] * matrix * columns


@given(st.integers(1, 16), st.sampled_from([0.0, 0.3, 0.7]), SEEDS)
@settings(max_examples=30, deadline=None)
def test_matrices_that_differ_by_phases_of_ports_are_equal_whatever_is_dark(n, dark, seed):
    rng = np.random.default_rng(seed)
    matrix = unitary(n, seed % 1000) * (rng.random((n, n)) >= dark)
    matrix[0, 0] += 1.0
    found = compare_matrices(screens(matrix, rng), matrix)
    assert found.fidelity == pytest.approx(1.0, abs=1e-12)
    assert found.proven
    assert found.residual < 1e-12
    assert found.tvd == pytest.approx(0.0, abs=1e-12)
    assert "phases of" in found.statement
    assert "proven" in found.statement


@given(st.integers(2, 6), st.floats(0.0, 2.0), SEEDS)
@settings(max_examples=25, deadline=None)
def test_the_bound_holds_and_is_reached_where_matrices_resemble_each_other(n, error, seed):
    rng = np.random.default_rng(seed)
    expected = unitary(n, seed % 1000)
    measured = screens(expected + error * unitary(n, seed % 1000 + 1), rng)
    found = compare_matrices(measured, expected, normalise="none")
    norm = np.linalg.norm(expected) * np.linalg.norm(measured)
    for _ in range(20):  # no choice of phases is above the bound
        assert (abs(np.sum(expected.conj() * screens(measured, rng))) / norm) ** 2 <= found.upper_bound + 1e-12
    if error < 0.3:
        assert found.proven


@pytest.mark.parametrize(("n", "seed"), [(2, 0), (3, 1), (4, 2)])
def test_scipy_finds_no_better_phases_even_for_unrelated_matrices(n, seed):
    first, second = unitary(n, seed), unitary(n, seed + 50)
    overlap = second.conj() * first

    def loss(phases):
        return -abs(np.exp(1j * phases[:n]) @ overlap @ np.exp(1j * phases[n:]))

    rng = np.random.default_rng(0)
    best = max(-minimize(loss, 2 * np.pi * rng.random(2 * n), method="BFGS").fun for _ in range(15))
    found = compare_matrices(first, second, normalise="none")
    assert found.fidelity >= (best / n) ** 2 - 1e-9
    assert found.upper_bound >= (best / n) ** 2 - 1e-9


@pytest.mark.parametrize("gauge", ["none", "global", "inputs", "outputs", "ports"])
def test_each_gauge_frees_its_phases_and_no_others(gauge):
    rng, matrix = np.random.default_rng(4), unitary(5, 4)
    rows, columns, one = np.exp(2j * np.pi * rng.random(5)), np.exp(2j * np.pi * rng.random(5)), np.exp(1j)
    changed = {"none": matrix, "global": one * matrix, "inputs": matrix * columns, "outputs": rows[:, None] * matrix}
    changed["ports"] = rows[:, None] * matrix * columns
    within = {"none": {"none"}, "global": {"none", "global"}, "ports": set(changed)}
    within |= {side: {"none", "global", side} for side in ("inputs", "outputs")}
    for kind, other in changed.items():
        found = compare_matrices(other, matrix, gauge=gauge)
        assert (found.fidelity > 1.0 - 1e-12) == (kind in within[gauge]), kind
        moved = np.exp(1j * found.output_phases)[:, None] * other * np.exp(1j * found.input_phases)
        assert moved - matrix == pytest.approx(found.error, abs=1e-12)
    assert compare_matrices(changed["global"], matrix, gauge=gauge, normalise="none").fidelity == pytest.approx(
        fidelity(changed["global"], matrix, gauge) if gauge in ("none", "global", "ports") else 1.0
    )


def test_a_conjugate_matrix_is_told_from_the_true_one():
    matrix, rng = unitary(6, 1), np.random.default_rng(0)
    found = compare_matrices(screens(matrix.conj(), rng), matrix)
    assert found.fidelity < 0.9
    assert found.conjugate_fidelity == pytest.approx(1.0, abs=1e-12)


def test_normalised_columns_forgive_losses_of_inputs_and_nothing_else():
    matrix = unitary(4, 2)
    inputs = matrix * np.array([1.0, 0.5, 0.9, 0.1])
    outputs = matrix * np.array([1.0, 0.5, 0.9, 0.1])[:, None]
    assert compare_matrices(inputs, matrix).fidelity == pytest.approx(1.0)
    assert compare_matrices(inputs, matrix, normalise="none").fidelity < 0.95
    assert compare_matrices(outputs, matrix).fidelity < 0.95


def test_a_dark_column_counts_and_is_no_division_by_zero():
    matrix = unitary(3, 3)
    dark = matrix.copy()
    dark[:, 1] = 0.0
    found = compare_matrices(dark, matrix)
    assert found.tvd == pytest.approx([0.0, 1.0, 0.0], abs=1e-12)
    assert found.fidelity == pytest.approx(2.0 / 3.0)


SCALES = [1e-300, 1e-160, 1e-12, 1e12, 1e160, 1e300]


@pytest.mark.parametrize("gauge", ["none", "global", "inputs", "outputs", "ports"])
@pytest.mark.parametrize("normalise", ["columns", "none"])
@pytest.mark.parametrize("scale", SCALES)
def test_a_factor_common_to_all_elements_changes_no_fidelity(gauge, normalise, scale):
    expected = unitary(4, 6) * np.array([1.0, 0.7, 0.9, 0.2])
    measured = screens(expected, np.random.default_rng(6)) + 0.1 * unitary(4, 7)
    found = compare_matrices(measured, expected, gauge, normalise)
    for first, second in ((scale, 1.0), (1.0, scale), (scale, scale)):
        scaled = compare_matrices(first * measured, second * expected, gauge, normalise)
        for name in ("fidelity", "upper_bound", "conjugate_fidelity", "tvd", "output_phases", "input_phases"):
            assert getattr(scaled, name) == pytest.approx(getattr(found, name), rel=1e-6, abs=1e-9), name
        assert scaled.proven == found.proven
        if normalise == "columns" or first == second:
            assert scaled.residual == pytest.approx(found.residual, rel=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_factors_of_columns_are_losses_of_inputs(scale):
    matrix = unitary(3, 8)
    found = compare_matrices(matrix * np.array([scale, 1.0, 1.0 / scale]), matrix)
    assert found.fidelity == pytest.approx(1.0, abs=1e-12)
    assert found.residual < 1e-12


def test_what_the_numbers_of_a_comparison_mean():
    """By hand: E = diag(1, 1), M = diag(2, 2i); sum conj(E) M = 2 + 2i, |E| |M| = sqrt(2) sqrt(8)."""
    expected, measured = np.eye(2), np.diag([2.0, 2.0j])
    plain = compare_matrices(measured, expected, "none", "none")
    assert plain.fidelity == pytest.approx((2.0 / 4.0) ** 2)
    assert plain.residual == pytest.approx(np.sqrt((1.0 + 5.0) / 2.0))
    assert plain.error == pytest.approx(np.diag([1.0, 2.0j - 1.0]))
    turned = compare_matrices(measured, expected, "global", "none")
    assert turned.fidelity == pytest.approx((2.0 * np.sqrt(2.0) / 4.0) ** 2)
    doubled = compare_matrices(2.0 * expected, expected, "ports", "none")
    assert (doubled.fidelity, doubled.residual) == (pytest.approx(1.0), pytest.approx(1.0))
    against = compare_matrices(-expected, expected, "none")
    assert (against.fidelity, against.residual) == (0.0, pytest.approx(2.0))
    assert compare_matrices(-expected, expected, "global").fidelity == pytest.approx(1.0)
    for found in (plain, turned, doubled):
        assert found.tvd == pytest.approx([0.0, 0.0])


def test_tall_and_wide_matrices():
    rng, matrix = np.random.default_rng(0), unitary(6, 5)
    for part in (matrix[:4], matrix[:, :3], matrix[:1], matrix[:, :1]):
        assert compare_matrices(screens(part, rng), part).fidelity == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (np.eye(2), np.eye(3), "shapes"),
        (np.zeros((2, 2)), np.eye(2), "zero"),
        (np.full((2, 2), np.nan), np.eye(2), "NaN"),
        (np.eye(2)[0], np.eye(2), "matrix"),
        ([["a"]], [[1.0]], "numbers"),
        (np.eye(2), np.zeros((2, 2)), "expected one is"),
        (np.eye(2), [[np.inf, 0.0], [0.0, 1.0]], "the expected matrix holds NaN"),
        (np.full((2, 2), 1.7e308 * (1.0 + 1.0j)), np.eye(2), "Inf"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "matrix"),
    ],
)
def test_what_cannot_be_compared(first, second, message):
    with pytest.raises(MatrixError, match=message):
        compare_matrices(first, second)


@pytest.mark.parametrize(("name", "value"), [("gauge", "port"), ("normalise", "rows")])
def test_unknown_choices(name, value):
    with pytest.raises(MatrixError, match=value):
        compare_matrices(np.eye(2), np.eye(2), **{name: value})


POWERS = st.just(0.0) | st.floats(1e-300, 1e300)


@given(st.lists(st.tuples(POWERS, POWERS), min_size=1, max_size=8))
def test_total_variation_is_a_distance(pairs):
    p, q = (np.array(column) for column in zip(*pairs, strict=True))
    distance = float(total_variation(p, q))
    assert 0.0 <= distance <= 1.0
    assert distance == total_variation(q, p)
    assert total_variation(p, p) == 0.0
    assert total_variation(p * 0.5, p) == pytest.approx(0.0, abs=1e-9)


def test_total_variation_by_hand():
    assert total_variation([0.5, 0.5, 0.0], [0.25, 0.25, 0.5]) == pytest.approx(0.5)
    assert total_variation([1.0, 0.0], [0.0, 2.0]) == 1.0
    assert total_variation([0.0, 0.0], [0.0, 0.0]) == 0.0
    assert total_variation([0.0, 0.0], [0.3, 0.0]) == 1.0
    for p, q in itertools.permutations(([1.0, -1.0], [1.0, 1.0])):
        with pytest.raises(MatrixError, match="negative"):
            total_variation(p, q)
    with pytest.raises(MatrixError, match="one shape"):
        total_variation([1.0], [1.0, 2.0])


def test_verdicts_name_what_is_wrong():
    matrix = unitary(3, 0)
    sure, vague = np.full((3, 3, 2), 1e-3), np.full((3, 3, 2), 1e-3)
    vague[1, 2, 1] = 0.5
    assert judge(matrix, sure, "ports", "test", 1.1).verdict == "good"
    assert judge(matrix, sure, "ports", "test", float("nan")).reason == ""
    partial = judge(matrix, vague, "ports", "test", 1.1)
    assert (partial.verdict, "phases of elements (1, 2)" in partial.reason) == ("partial", True)
    poor = judge(matrix, vague, "ports", "test", 9.0)
    assert poor.verdict == "poor"
    assert "9 times their noise" in poor.reason
    assert judge(matrix, sure, "ports", "test", 1.0, "odd").reason == "odd"
    assert "every output and every input" in partial.free
    assert rms_element(matrix) == pytest.approx(1 / np.sqrt(3))


def test_the_picture_shows_both_matrices_and_says_what_was_free(tmp_path):
    rng, matrix = np.random.default_rng(0), unitary(4, 0)
    figure = matrix_figure(screens(matrix, rng), matrix, title="four ports")
    texts = [axes.get_title() for axes in figure.axes]
    assert sum(text.startswith("modulus") for text in texts) == 3
    assert "four ports\nfidelity 1.000000, maximised over the phases of 4 outputs" in figure.get_suptitle()
    figure.savefig(tmp_path / "matrix.png")
    assert (tmp_path / "matrix.png").stat().st_size > 10_000
