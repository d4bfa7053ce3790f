"""Lossless meshes at their extremes: cross and bar states, hundreds of columns, and products on one or more threads."""

import numpy as np
import pytest
import torch
from meshes import apart, dense_matrix, draw, furthest, leaves, weighed
from torch.autograd import grad

from optinc_hw.photonics import MeshLayout, MeshModel, RectangularLayout, TriangularLayout
from optinc_hw.photonics._products import product, product_adjoint

PRECISIONS = ((torch.float64, torch.complex128, 1e-12), (torch.float32, torch.complex64, 1e-4))


def deep(ports, columns):
    """A mesh of many more columns than a unitary matrix needs."""
    return MeshLayout(ports, tuple((c, m) for c in range(columns) for m in range(c % 2, ports - 1, 2)))


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def gradients(layout, phases, fields, backend, dtype, elements):
    given = [phase.to(dtype).requires_grad_() for phase in phases]
    model = MeshModel(layout, backend=backend, **{name: value.to(dtype) for name, value in elements.items()})
    made = model.apply(*given, fields)
    return made.detach(), grad(weighed(made), given, materialize_grads=True)


@pytest.mark.parametrize(("dtype", "complex_dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize(("layout", "seed"), [(deep(6, 500), 1), (deep(5, 301), 2), (deep(40, 200), 3)])
def test_hundreds_of_columns(layout, seed, dtype, complex_dtype, tolerance):
    phases, _, fields = draw(layout, (), seed=seed, vectors=5)
    made, got = gradients(layout, phases, fields.to(complex_dtype), "numba", dtype, {})
    expected_made, expected = gradients(layout, phases, fields, "torch", torch.float64, {})
    assert apart(made.to(torch.complex128), expected_made) < tolerance
    assert furthest([value.double() for value in got], expected) < 10 * tolerance


@pytest.mark.parametrize(("dtype", "complex_dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("quarters", [(0,), (2,), (0, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("layout", [RectangularLayout(2), RectangularLayout(9), TriangularLayout(8), deep(7, 120)])
def test_cross_states_bar_states_and_quarter_turns(layout, quarters, dtype, complex_dtype, tolerance):
    generator = torch.Generator().manual_seed(len(layout.mzis))

    def drawn(size, chosen):
        places = torch.randint(len(chosen), (size,), generator=generator)
        return torch.tensor(chosen, dtype=torch.float64)[places] * torch.pi / 2

    mzis = len(layout.mzis)
    phases = drawn(mzis, quarters), drawn(mzis, (0, 1, 2, 3)), drawn(layout.ports, (0, 1))
    _, _, fields = draw(layout, (), vectors=3)
    # Couplers that split nothing, all or half: sines and cosines of the rotations vanish, too.
    eta = torch.tensor([0.0, torch.pi / 2, torch.pi / 4], dtype=torch.float64)[torch.arange(mzis) % 3]
    for elements in ({}, {"eta_in": eta, "eta_out": eta.flip(0)}):
        made, got = gradients(layout, phases, fields.to(complex_dtype), "numba", dtype, elements)
        given = leaves(phases)
        expected_made = dense_matrix(layout, *given, **elements) @ fields
        expected = grad(weighed(expected_made), given)
        assert apart(made.to(torch.complex128), expected_made) < tolerance
        assert furthest([value.double() for value in got], expected) < tolerance


@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex64])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 1, 1), (3, 5, 2), (33, 40, 35), (64, 65, 33), (130, 7, 64)])
def test_products_on_one_thread_and_on_two(rows, depth, columns, dtype, threads):
    generator = torch.Generator().manual_seed(rows)
    left, right, other = (
        torch.randn(*shape, dtype=torch.complex128, generator=generator)
        for shape in ((rows, depth), (depth, columns), (columns, depth))
    )
    # Every element within round-off of the sum of the sizes of what is added.
    few = 10 * torch.finfo(dtype).eps
    of_product, of_adjoint = few * left.abs() @ right.abs(), few * left.abs() @ other.abs().T
    for count in (1, 2):
        threads(count)
        made, adjoint = product(left.to(dtype), right.to(dtype)), product_adjoint(left.to(dtype), other.to(dtype))
        assert made.dtype == adjoint.dtype == dtype
        assert ((made - left @ right).abs() <= of_product).all()
        assert ((adjoint - left @ other.mH).abs() <= of_adjoint).all()


def test_models_give_the_same_on_one_thread_and_on_two(threads):
    layout = RectangularLayout(40)
    phases, _, fields = draw(layout, (), vectors=70)
    found = []
    for count in (1, 2):
        threads(count)
        model, given = MeshModel(layout), leaves([*phases, fields])
        made = model.apply(*given)
        with torch.no_grad():
            np.testing.assert_allclose(model.apply(*given).numpy(), made.detach().numpy(), atol=1e-13)
        found.append((made.detach(), *grad(weighed(made), given)))
    assert furthest(*found) < 1e-12


def test_products_of_fields_that_are_views(threads):
    threads(1)
    layout = RectangularLayout(33)
    phases, _, fields = draw(layout, (), vectors=66)
    model, matrix = MeshModel(layout), MeshModel(layout, backend="torch").matrix(*phases)
    with torch.no_grad():
        for view in (fields[:, ::2], fields.conj(), fields.T.contiguous().T, -fields.conj()):
            assert apart(model.apply(*phases, view), matrix @ view.resolve_conj().clone()) < 1e-13
