"""Real matrices in three forms: factors, counts, phases, and what the approximated form loses."""

import re
import runpy
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_examples import ROOT, as_script

from optinc_hw.errors import MatrixError
from optinc_hw.onn import Form, count_mzis
from optinc_hw.photonics import (
    BlockRealisation,
    Realisation,
    RealPartRealisation,
    RectangularLayout,
    SvdRealisation,
    TriangularLayout,
    mesh_matrix,
    mzi_count,
    realise,
)

FORMS = ("svd", "sigma_u", "re_u")
SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 7))
REAL = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.floats(-1e3, 1e3, width=32)
)


def orthogonal(size, rng):
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


@given(REAL, st.sampled_from(FORMS))
def test_every_form_has_the_same_interface(matrix, form):
    made = realise(matrix, form=form)
    assert isinstance(made, Realisation)
    assert made.form == form
    assert made.shape == matrix.shape
    assert made.scale > 0.0
    assert made.mzis == mzi_count(matrix.shape, form)
    for unitary in made.unitaries:
        np.testing.assert_allclose(unitary @ unitary.conj().T, np.eye(len(unitary)), atol=1e-12)
    realised = made.matrix()
    assert realised.shape == matrix.shape
    asked = np.linalg.norm(matrix)
    assert made.residual * asked == pytest.approx(np.linalg.norm(realised - matrix), abs=1e-12 * max(asked, 1.0))


@given(REAL)
def test_svd_form_reproduces_every_real_matrix(matrix):
    made = realise(matrix, form="svd")
    assert isinstance(made, SvdRealisation)
    rows, columns = matrix.shape
    assert made.left.shape == (rows, rows)
    assert made.right.shape == (columns, columns)
    assert made.unitaries == (made.right, made.left)
    assert made.sigma.shape == (min(rows, columns),)
    assert ((made.sigma >= 0.0) & (made.sigma <= 1.0)).all()
    middle = np.zeros((rows, columns))
    np.fill_diagonal(middle, made.sigma)
    np.testing.assert_allclose(made.scale * made.left @ middle @ made.right, made.matrix(), atol=1e-12 * made.scale)
    np.testing.assert_allclose(made.matrix(), matrix, atol=1e-12 * max(1.0, np.abs(matrix).max()))
    assert made.residual < 1e-13


@given(REAL)
def test_real_part_form_reproduces_every_real_matrix(matrix):
    made = realise(matrix, form="re_u")
    assert isinstance(made, RealPartRealisation)
    assert made.unitary.shape == (max(matrix.shape),) * 2
    np.testing.assert_allclose(made.matrix(), matrix, atol=1e-12 * max(1.0, np.abs(matrix).max()))
    assert made.residual < 1e-13


@given(REAL)
def test_block_form_cuts_the_longer_side_and_attenuates_outputs(matrix):
    made = realise(matrix, form="sigma_u")
    assert isinstance(made, BlockRealisation)
    rows, columns = matrix.shape
    side, count = min(rows, columns), -(-max(rows, columns) // min(rows, columns))
    assert made.blocks.shape == (count, side, side)
    assert made.sigma.shape == (count, side)
    assert len(made.unitaries) == count
    assert ((made.sigma >= 0.0) & (made.sigma <= 1.0)).all()
    parts = [made.scale * np.diag(sigma) @ block for sigma, block in zip(made.sigma, made.blocks, strict=True)]
    whole = np.hstack(parts) if columns > rows else np.vstack(parts)
    np.testing.assert_allclose(whole[:rows, :columns], made.matrix(), atol=1e-12 * made.scale)
    assert made.residual <= 1.0 + 1e-12


@given(SHAPES, SEEDS)
def test_rows_are_fitted_by_least_squares_to_the_polar_factor(shape, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal(shape)
    made = realise(matrix, form="sigma_u")
    side, wide = min(shape), shape[1] > shape[0]
    for k, block in enumerate(made.unitaries):
        cut = matrix[:, k * side : (k + 1) * side] if wide else matrix[k * side : (k + 1) * side]
        inner = block[: cut.shape[0], : cut.shape[1]]
        positive = cut @ inner.T if cut.shape[0] <= cut.shape[1] else inner.T @ cut
        np.testing.assert_allclose(positive, positive.T, atol=1e-10)  # W = P U with P symmetric, not negative
        assert np.linalg.eigvalsh(positive).min() > -1e-10
        best = [np.linalg.lstsq(row[:, None], target, rcond=None)[0][0] for row, target in zip(inner, cut, strict=True)]
        np.testing.assert_allclose(made.scale * made.sigma[k, : len(cut)], best, rtol=1e-9, atol=1e-10)


@given(st.integers(1, 6), st.integers(1, 4), st.booleans(), SEEDS)
def test_row_scaled_orthogonal_blocks_are_exact(side, count, wide, seed):
    rng = np.random.default_rng(seed)
    blocks = [rng.uniform(-3.0, 3.0, side)[:, None] * orthogonal(side, rng) for _ in range(count)]
    matrix = np.hstack(blocks) if wide else np.vstack(blocks)
    made = realise(matrix, form="sigma_u")
    assert made.residual < 1e-12
    np.testing.assert_allclose(made.matrix(), matrix, atol=1e-12)


@given(st.integers(2, 6), st.integers(2, 4), SEEDS)
def test_row_scaled_blocks_of_which_the_last_lacks_outputs_are_exact(side, count, seed):
    rng = np.random.default_rng(seed)
    matrix = np.vstack([rng.uniform(-3.0, 3.0, side)[:, None] * orthogonal(side, rng) for _ in range(count)])
    for missing in range(1, side):
        assert realise(matrix[:-missing], form="sigma_u").residual < 1e-12


@pytest.mark.parametrize("row", [[[3.0, -4.0, 0.5]], [[0.0, 1e-9, -1.0]]])
def test_vectors_are_exact(row):
    for vector in (row, np.transpose(row)):
        made = realise(vector, form="sigma_u")
        np.testing.assert_allclose(made.matrix(), vector, atol=1e-15)
        assert made.scale == np.abs(row).max()
        assert made.mzis == 3


def test_a_block_of_dark_rows_or_missing_rank_is_finite():
    matrix = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [2.0, 4.0, 0.0]])
    made = realise(matrix, form="sigma_u")
    assert np.isfinite(made.matrix()).all()
    assert made.sigma[0, 1] == 0.0
    narrow = realise([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], form="sigma_u")  # the last block is one input, half dark
    np.testing.assert_allclose(narrow.matrix(), [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], atol=1e-15)


def test_gaussian_blocks_lose_half_of_their_norm():
    # A random matrix is no good fit, so networks are trained for the form.
    draws = np.random.default_rng(0).standard_normal((4, 64, 64))
    lost = [realise(draw, form="sigma_u").residual for draw in draws]
    np.testing.assert_allclose(lost, 0.52, atol=0.02)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("matrix", [np.zeros((2, 3)), [[5]], [[True, False]], np.eye(4, dtype=np.float32), -np.eye(3)])
def test_simple_matrices_are_realised(form, matrix):
    made = realise(matrix, form=form)
    np.testing.assert_allclose(made.matrix(), np.asarray(matrix, float), atol=1e-13)
    assert made.residual < 1e-13


@pytest.mark.parametrize("form", FORMS)
def test_the_zero_matrix_needs_no_gain(form):
    made = realise(np.zeros((3, 2)), form=form)
    assert made.scale == 1.0
    assert made.residual == 0.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
def test_very_small_and_very_large_matrices_keep_their_accuracy(form, size):
    matrix = size * np.array([[0.6, 0.8], [-0.8, 0.6]])
    made = realise(matrix, form=form)
    np.testing.assert_allclose(made.matrix(), matrix, rtol=1e-14)
    assert made.residual < 1e-14


@pytest.mark.parametrize("form", FORMS)
def test_later_changes_of_the_asked_matrix_do_not_reach_it(form):
    matrix = np.eye(3)
    made = realise(matrix, form=form)
    matrix[:] = 7.0
    assert made.residual < 1e-14


@given(REAL, st.sampled_from(FORMS), st.sampled_from([RectangularLayout, TriangularLayout]))
def test_meshes_make_the_unitaries(matrix, form, layout):
    made = realise(matrix, form=form)
    meshes = made.meshes(layout)
    assert [phases.layout for phases in meshes] == [layout(len(unitary)) for unitary in made.unitaries]
    assert all(phases.error < 1e-12 for phases in meshes)
    for phases, unitary in zip(meshes, made.unitaries, strict=True):
        np.testing.assert_allclose(mesh_matrix(phases), unitary, atol=1e-12)
    # The formula has an attenuator for every output, needed or not.
    attenuators = {"svd": made.shape[0], "sigma_u": len(meshes) * min(made.shape), "re_u": 0}[form]
    assert sum(len(phases.layout.mzis) for phases in meshes) + attenuators == made.mzis


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_counts_follow_from_the_parts(rows, columns):
    def mesh(ports):
        return ports * (ports - 1) // 2

    large, small = max(rows, columns), min(rows, columns)
    assert mzi_count((rows, columns), "svd") == mesh(rows) + rows + mesh(columns)
    assert mzi_count((rows, columns), "sigma_u") == -(-large // small) * (mesh(small) + small)
    assert mzi_count((rows, columns), "re_u") == mesh(large)
    for form in FORMS:
        assert count_mzis((rows, columns), form) == mzi_count((rows, columns), form)


def test_networks_count_in_the_same_forms():
    assert get_args(Form) == FORMS


@pytest.mark.parametrize(
    ("matrix", "form", "message"),
    [
        (1j * np.eye(2), "svd", "real matrix .* complex128"),
        (np.ones(3), "re_u", r"got shape \(3,\)"),
        (np.ones((0, 3)), "sigma_u", r"got shape \(0, 3\)"),
        ([[np.nan]], "svd", "NaN or Inf"),
        ([[1.0], [2.0, 3.0]], "svd", "numbers"),
        ([["x"]], "svd", "numbers"),
        (np.full((2, 2), 1.5e308), "sigma_u", "exceeds float64; scale it down"),
        (np.eye(2), "usv", "unknown form 'usv'; choose"),
    ],
)
def test_what_is_no_real_matrix_is_refused(matrix, form, message):
    with pytest.raises(MatrixError, match=message):
        realise(matrix, form=form)


@pytest.mark.parametrize(
    ("shape", "form", "message"),
    [((0, 3), "svd", "at least 1"), ((3, -1), "re_u", "at least 1"), ((2, 2), "reck", "unknown form 'reck'")],
)
def test_what_cannot_be_counted_is_refused(shape, form, message):
    with pytest.raises(MatrixError, match=message):
        mzi_count(shape, form)


def test_examples_of_the_page_on_meshes_print_what_it_says(tmp_path, capsys):
    page = (ROOT / "docs" / "explanation" / "meshes.md").read_text(encoding="utf-8")
    script = tmp_path / "meshes.py"
    script.write_text(as_script(page), encoding="utf-8")
    runpy.run_path(str(script))
    said = re.findall(r"(?:^|print.*  )# (.*)$", as_script(page), flags=re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == said
