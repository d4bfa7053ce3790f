"""The values of `MeshModel` and `mesh_matrix`: against dense products, between backends, in batches, at odd angles."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from meshes import BACKENDS, ELEMENTS, LAYOUTS, apart, dense_matrix, draw, single

from optinc_hw.errors import MatrixError
from optinc_hw.photonics import (
    MeshImperfections,
    MeshLayout,
    MeshModel,
    MeshPhases,
    RectangularLayout,
    TriangularLayout,
    mesh_matrix,
)

pytestmark = pytest.mark.filterwarnings("error")
NARROW, WIDE, MANY = 1, 7, 40  # vectors: fewer than half the ports of some meshes, more than those of most
# Settings, chips: both sides of every branch of the model (one, few, at least 16; couplers shared or not).
BATCHES = [
    ((), None), ((), ()), ((1,), ()), ((3,), ()), ((3,), (3,)), ((), (4,)), ((2, 1), (3,)), ((2, 3), ()),
    ((20,), ()), ((20,), (20,)), ((), (20,)), ((20,), (1,)), ((4, 5), (4, 1)),
]  # fmt: skip


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def imperfections(elements):
    return MeshImperfections(**{name: elements[name].numpy() for name in ELEMENTS})


# Values.


@pytest.mark.parametrize("name", LAYOUTS)
def test_matrices_are_the_dense_product(name, backend):
    layout = LAYOUTS[name]
    for chips in (None, ()):
        phases, elements, _ = draw(layout, chips=chips)
        expected = dense_matrix(layout, *phases, **elements)
        assert apart(MeshModel(layout, backend=backend, **elements).matrix(*phases), expected) < 1e-12
        coarse = MeshModel(layout, backend=backend, **single(elements)).matrix(*single(phases))
        assert coarse.dtype == torch.complex64
        assert apart(coarse.to(torch.complex128), expected) < 1e-5


@pytest.mark.parametrize("name", LAYOUTS)
def test_mesh_matrix_agrees(name):
    layout = LAYOUTS[name]
    phases, elements, _ = draw(layout, (2, 3), ())
    made = mesh_matrix(MeshPhases(layout, *(p.numpy() for p in phases)), imperfections(elements))
    assert apart(torch.from_numpy(made), dense_matrix(layout, *phases, **elements)) < 1e-12


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("name", ["rectangular 1", "rectangular 5", "triangular 3", "gaps"])
def test_batches_of_settings_and_chips(name, batch, backend):
    layout, (many, chips) = LAYOUTS[name], batch
    for vectors in (NARROW, WIDE, MANY):
        phases, elements, fields = draw(layout, many, chips, vectors=vectors)
        model = MeshModel(layout, backend=backend, **elements)
        expected = dense_matrix(layout, *phases, **elements)
        assert apart(model.matrix(*phases), expected) < 1e-12
        assert apart(model.apply(*phases, fields), expected @ fields) < 1e-12
        coarse = MeshModel(layout, backend=backend, **single(elements)).apply(*single(phases), *single([fields]))
        assert coarse.dtype == torch.complex64
        assert apart(coarse.to(torch.complex128), expected @ fields) < 1e-5


@pytest.mark.parametrize("ports", [17, 32, 33, 64])
def test_larger_meshes(ports, backend):
    layout = RectangularLayout(ports)  # light cones, row lengths and the choice of kernel change with the size
    phases, elements, fields = draw(layout, (17,), (), vectors=1)
    model = MeshModel(layout, backend=backend, **elements)
    expected = dense_matrix(layout, *(p[0] for p in phases), **elements)
    assert apart(model.matrix(*(p[:1] for p in phases))[0], expected) < 1e-12
    assert apart(model.apply(*phases, fields)[0], expected @ fields[0]) < 1e-12
    if ports < 64 and backend == "numba":
        assert apart(model.matrix(*phases)[0], expected) < 1e-12


def test_a_mesh_without_output_phases(backend):
    layout = RectangularLayout(5)
    (theta, phi, _), elements, fields = draw(layout, (3,), ())
    model = MeshModel(layout, backend=backend, **elements)
    assert apart(model.matrix(theta, phi), dense_matrix(layout, theta, phi, **elements)) < 1e-12
    one = dense_matrix(layout, theta[0], phi[0], **elements)
    assert apart(model.matrix(theta[0], phi[0]), one) < 1e-12
    assert apart(model.apply(theta[0], phi[0], None, fields[0]), one @ fields[0]) < 1e-12


def test_fields_and_phases_broadcast(backend):
    layout = RectangularLayout(6)
    (theta, phi, output), elements, fields = draw(layout, (4, 3), ())
    model = MeshModel(layout, backend=backend, **elements)
    for one, two, three, sent in [
        (theta, phi[0, 0], output[:1], fields), (theta[:, :1], phi[0], output[0, 0], fields),
        (theta, phi, output, fields[0, 0]), (theta[0, 0], phi[0, 0], output[0, 0], fields),
        (theta[0, 0], phi[0, 0], output[:1, :1], fields), (theta[0], phi[0], output, fields[:, :1]),
    ]:  # fmt: skip
        expected = dense_matrix(layout, *torch.broadcast_tensors(one, two), three, **elements) @ sent
        assert apart(model.apply(one, two, three, sent), expected) < 1e-12
        wide = sent.repeat(1, 5) if sent.ndim == 2 else sent.repeat(*[1] * (sent.ndim - 1), 5)
        assert apart(model.apply(one, two, three, wide), expected.repeat(*[1] * (expected.ndim - 1), 5)) < 1e-12


def test_single_elements_broadcast(backend):
    layout = TriangularLayout(4)
    phases, _, _ = draw(layout, ())
    _, elements, _ = draw(layout, (), (3,))
    for name in ELEMENTS:
        model = MeshModel(layout, backend=backend, **{name: elements[name]})
        assert apart(model.matrix(*phases), dense_matrix(layout, *phases, **{name: elements[name]})) < 1e-12


@settings(max_examples=40)
@given(data=st.data())
def test_kernels_and_torch_agree(data):
    ports = data.draw(st.integers(1, 7))
    placed = data.draw(
        st.sets(st.tuples(st.integers(0, 3), st.integers(0, ports - 2))) if ports > 1 else st.just(set())
    )
    layout = MeshLayout(ports, tuple((2 * column + mode % 2, mode) for column, mode in placed))
    many = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    chips = tuple(data.draw(st.sampled_from([1, size])) for size in many)
    phases, elements, fields = draw(
        layout, many, chips, seed=data.draw(st.integers(0, 99)), vectors=data.draw(st.integers(0, 9))
    )
    chosen = {name: elements[name] for name in data.draw(st.sets(st.sampled_from(ELEMENTS)))}
    first, second = (MeshModel(layout, backend=name, **chosen) for name in BACKENDS)
    assert apart(first.matrix(*phases), second.matrix(*phases)) < 1e-13
    assert apart(first.apply(*phases, fields), second.apply(*phases, fields)) < 1e-12


@pytest.mark.parametrize("many", [(), (3,), (20,)])
def test_no_settings_and_no_vectors(many, backend):
    layout = RectangularLayout(4)
    phases, _, fields = draw(layout, many, vectors=0)
    model = MeshModel(layout, backend=backend)
    assert model.apply(*phases, fields).shape == (*many, 4, 0)
    none, _, sent = draw(layout, (0, *many), vectors=1)
    assert model.matrix(*none).shape == (0, *many, 4, 4)
    assert model.apply(*none, sent).shape == (0, *many, 4, 1)


# What is refused.


def test_wrong_shapes_and_types_are_named(backend):
    layout = RectangularLayout(4)
    (theta, phi, output), elements, fields = draw(layout, (2,), ())
    model = MeshModel(layout, backend=backend, **elements)
    for message, call in [
        (r"theta has shape \(2, 5\).*6", lambda: model.matrix(theta[:, :5], phi, output)),
        (r"phi has shape \(\)", lambda: model.matrix(theta, phi[0, 0], output)),
        (r"output has shape \(2, 3\).*4", lambda: model.matrix(theta, phi, output[:, 1:])),
        (r"fields have shape \(2, 3, 2\).*4, w", lambda: model.apply(theta, phi, output, fields[:, 1:])),
        (r"fields have shape \(4,\)", lambda: model.apply(theta, phi, output, fields[0, :, 0])),
        ("do not broadcast", lambda: model.matrix(theta, phi[[0, 0, 1]], output)),
        ("do not broadcast", lambda: model.apply(theta, phi, output, fields[[0, 0, 1]])),
        ("do not broadcast", lambda: model.apply(theta, phi, output, fields[[0, 0, 1]].repeat(1, 1, 9))),
        ("theta is torch.int64", lambda: model.matrix(theta.long(), phi.long())),
        ("theta is torch.float16", lambda: model.matrix(theta.half(), phi.half())),
        ("phi is torch.float32", lambda: model.matrix(theta, phi.float(), output)),
        ("output is torch.float32", lambda: model.matrix(theta, phi, output.float())),
        ("fields are torch.float64.*complex128", lambda: model.apply(theta, phi, output, fields.real)),
        ("fields are torch.complex64", lambda: model.apply(theta, phi, output, fields.to(torch.complex64))),
    ]:
        with pytest.raises(MatrixError, match=message):
            call()


def test_wrong_elements_are_named(backend):
    layout = RectangularLayout(4)
    phases, elements, _ = draw(layout, (), (2,))
    for name in ELEMENTS:
        with pytest.raises(MatrixError, match=f"{name} has shape"):
            MeshModel(layout, backend=backend, **{name: elements[name][:, 1:]})
    with pytest.raises(MatrixError, match="unknown backend 'cuda'"):
        MeshModel(layout, backend="cuda")
    chips = MeshModel(layout, backend=backend, eta_in=elements["eta_in"], arms=elements["arms"][[0, 1, 1]])
    with pytest.raises(MatrixError, match="elements do not broadcast"):
        chips.matrix(*phases)
    with pytest.raises(MatrixError, match="elements do not broadcast"):
        MeshModel(layout, backend=backend, **elements).matrix(*draw(layout, (3,))[0])


def test_models_of_imperfections():
    layout = RectangularLayout(4)
    phases, elements, _ = draw(layout, (), (3,))
    flaws = imperfections(elements)
    for dtype, close in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        made = MeshModel.from_imperfections(layout, flaws, dtype).matrix(*(p.to(dtype) for p in phases))
        assert apart(made.to(torch.complex128), dense_matrix(layout, *phases, **elements)) < close
    with pytest.raises(MatrixError, match="eta_in has shape"):
        MeshModel.from_imperfections(RectangularLayout(5), flaws)
    held = MeshImperfections(flaws.eta_in, flaws.eta_out, flaws.transmission, stuck_phi=np.full(6, np.nan))
    with pytest.raises(MatrixError, match="stuck"):
        MeshModel.from_imperfections(layout, held)


def test_mesh_matrix_of_a_batch_of_chips_with_stuck_mzis():
    layout = TriangularLayout(4)
    phases, elements, _ = draw(layout, (2, 1), (3,))
    stuck = np.full((3, 6), np.nan)
    stuck[1, 2], stuck[2, 5] = 0.4, -1.0
    held = torch.from_numpy(stuck)
    flaws = MeshImperfections(**{k: elements[k].numpy() for k in ELEMENTS}, stuck_theta=stuck, stuck_phi=stuck[1])
    made = mesh_matrix(MeshPhases(layout, *(p.numpy() for p in phases)), flaws)
    theta = torch.where(held.isnan(), phases[0], held)
    phi = torch.where(held[1].isnan(), phases[1], held[1])
    assert made.shape == (2, 3, 4, 4)
    assert apart(torch.from_numpy(made), dense_matrix(layout, theta, phi, phases[2], **elements)) < 1e-12


# Angles.


def phase_factors(angles):
    """exp(i angle) as the engine has it: a mesh of one port is its output phase."""
    empty = np.empty((len(angles), 0))
    return mesh_matrix(MeshPhases(RectangularLayout(1), empty, empty, angles[:, None]))[:, 0, 0]


def test_trigonometry_is_that_of_numpy():
    rng = np.random.default_rng(0)
    quarters = np.arange(-40, 41) * (math.pi / 4)
    angles = np.concatenate([
        rng.uniform(-7, 7, 2000), rng.uniform(-1e5, 1e5, 2000), 10.0 ** rng.uniform(-320, 0, 200), quarters,
        np.nextafter(quarters, 99.0), np.nextafter(quarters, -99.0), [0.0, -0.0, 1e5, -1e5, 5e-324, 1e-310],
    ])  # fmt: skip
    assert np.abs(phase_factors(angles) - np.exp(1j * angles)).max() < 3e-16


def test_right_angles_are_as_exact_as_doubles():
    made = phase_factors(np.array([0.0, math.pi / 2, math.pi, -math.pi]))
    np.testing.assert_allclose(made, [1, 6.123234e-17 + 1j, -1 + 1.2246468e-16j, -1 - 1.2246468e-16j], rtol=1e-7)


@pytest.mark.parametrize("size", [1e3, 1e6, -1e5, 1e5 + 1, -1e17])
def test_huge_phases(size, backend):
    layout = RectangularLayout(3)
    phases, elements, _ = draw(layout, (2,), ())
    huge = tuple(p + size for p in phases)
    turned = tuple(torch.atan2(torch.sin(p), torch.cos(p)) for p in huge)
    expected = dense_matrix(layout, *turned, **elements)
    assert apart(MeshModel(layout, backend=backend, **elements).matrix(*huge), expected) < 1e-9


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_phases_that_are_no_numbers_give_nan_where_they_act(value, backend):
    layout = RectangularLayout(4)
    (theta, phi, output), elements, fields = draw(layout, (3,), (), vectors=1)
    model = MeshModel(layout, backend=backend, **elements)
    broken = theta.clone()
    broken[1, 0] = value
    broken[2] += 1e9  # huge phases beside it stay right
    made, got = model.matrix(broken, phi, output), model.apply(broken, phi, output, fields)
    assert made[1].isnan().any()
    assert got[1].isnan().any()
    turned = torch.atan2(torch.sin(broken), torch.cos(broken))
    for b in (0, 2):
        expected = dense_matrix(layout, turned[b], phi[b], output[b], **elements)
        assert apart(made[b], expected) < 1e-12
        assert apart(got[b], expected @ fields[b]) < 1e-12


def test_subnormal_phases_and_fields(backend):
    layout = RectangularLayout(4)
    tiny = torch.full((2, 6), 1e-310, dtype=torch.float64)
    model = MeshModel(layout, backend=backend)
    assert apart(model.matrix(tiny, tiny), dense_matrix(layout, 0 * tiny, 0 * tiny)) < 1e-15
    phases, _, fields = draw(layout, (2,))
    got = model.apply(*phases, fields * 1e-310)
    torch.testing.assert_close(got * 1e300, dense_matrix(layout, *phases) @ fields * 1e-10, rtol=1e-10, atol=1e-20)


# Models in use.


def test_elements_may_change_between_calls(backend):
    layout = RectangularLayout(4)
    phases, elements, _ = draw(layout, (), ())
    model = MeshModel(layout, backend=backend, **elements)
    model.matrix(*phases)
    elements["arms"] *= 0.5
    elements["eta_in"][1] += 0.1
    assert apart(model.matrix(*phases), dense_matrix(layout, *phases, **elements)) < 1e-12
    coarse = model.matrix(*single(phases))
    assert apart(coarse.to(torch.complex128), dense_matrix(layout, *phases, **elements)) < 1e-5


def test_threads_share_a_model(backend):
    layout = RectangularLayout(9)
    sets = [draw(layout, (4,), (), seed=seed, vectors=3) for seed in range(16)]
    _, elements, _ = sets[0]
    model = MeshModel(layout, backend=backend, **elements)

    def work(drawn):
        phases, _, fields = drawn
        leaf = phases[0].clone().requires_grad_()
        got = model.apply(leaf, *phases[1:], fields)
        return got.detach(), torch.autograd.grad(got.abs().sum(), leaf)[0]

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(work, sets))
    for drawn, (got, gradient) in zip(sets, together, strict=True):
        again, once_more = work(drawn)
        assert torch.equal(got, again)
        assert torch.equal(gradient, once_more)
        assert apart(got, dense_matrix(layout, *drawn[0], **elements) @ drawn[2]) < 1e-12


def test_s08_each_effect_changes_what_it_should(backend):
    layout = RectangularLayout(4)
    phases, elements, _ = draw(layout, (), ())

    def made(crosstalk=0.0, **given):
        together = torch.cat(phases)
        near = crosstalk * torch.exp(-(torch.arange(16.0)[:, None] - torch.arange(16.0)).abs()).double()
        near.fill_diagonal_(1.0)
        parts = (near @ together).split([6, 6, 4])
        return MeshModel(layout, backend=backend, **given).matrix(*parts)

    def unitary(matrix):
        return apart(matrix.mH @ matrix, torch.eye(4, dtype=torch.complex128)) < 1e-12

    ideal = made()
    dimmed = made(transmission=torch.full((6,), 0.9, dtype=torch.float64))
    # Loss alone: light 0 -> 3 has passed one MZI in each of 3 or 4 columns, and no split ratio of a path changes.
    assert apart(dimmed[3, 0], ideal[3, 0] * 0.9**3) < 1e-12
    assert not unitary(dimmed)
    split = made(eta_in=elements["eta_in"])
    assert unitary(split)  # splitter errors take no light
    assert apart(split.abs(), ideal.abs()) > 1e-2
    talking = made(crosstalk=0.1)
    assert unitary(talking)
    assert apart(talking, ideal) > 1e-2
    assert apart(made(crosstalk=0.0), ideal) == 0.0
    lopsided = made(arms=elements["arms"])
    assert float(torch.linalg.svdvals(lopsided).max()) < 1.0
