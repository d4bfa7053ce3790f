"""Gradients of `MeshModel` and `mesh_vjp`: finite differences, plain autograd, dead arms, lossless meshes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from meshes import (
    BACKENDS,
    ELEMENTS,
    LAYOUTS,
    apart,
    dense_gradients,
    draw,
    furthest,
    leaves,
    model_gradients,
    single,
    weighed,
)
from torch.autograd import grad, gradcheck, gradgradcheck

from optinc_hw.errors import MatrixError
from optinc_hw.photonics import (
    MeshImperfections,
    MeshLayout,
    MeshModel,
    MeshPhases,
    PhasePlacement,
    RectangularLayout,
    TriangularLayout,
    mesh_matrix,
)
from optinc_hw.photonics._transfer import mesh_vjp


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


# gradcheck and gradgradcheck.


@pytest.mark.parametrize(
    ("name", "many", "chips", "vectors"),
    [
        ("rectangular 3", (), (), 2), ("gaps", (), (), 1), ("triangular 3", (2,), (), 1),
        ("rectangular 3", (2,), (), 3),
        ("triangular 3", (2,), (2,), 1), ("rectangular 3", (), (2,), 2), ("rectangular 2", (16,), (), 1),
        ("rectangular 2", (2, 8), (8,), 2), ("rectangular 1", (2,), (), 1),
    ],
)  # fmt: skip
def test_gradcheck_with_losses_coupler_errors_and_unequal_arms(name, many, chips, vectors, backend):
    layout = LAYOUTS[name]
    phases, elements, fields = draw(layout, many, chips, vectors=vectors)

    def both(theta, phi, output, sent, *given):
        model = MeshModel(layout, backend=backend, **dict(zip(ELEMENTS, given, strict=True)))
        return model.apply(theta, phi, output, sent), model.matrix(theta, phi, output)

    assert gradcheck(both, leaves([*phases, fields, *elements.values()]))


@pytest.mark.parametrize("many", [(), (2,)])
def test_gradcheck_through_thermal_crosstalk(many, backend):
    layout = RectangularLayout(3)
    phases, elements, fields = draw(layout, many, (), vectors=1)
    model = MeshModel(layout, backend=backend, **elements)
    distance = (torch.arange(9.0)[:, None] - torch.arange(9.0)).abs().double()
    commanded, crosstalk = leaves([torch.cat(phases, dim=-1), 0.2**distance])

    def sent(commanded, crosstalk):
        return model.apply(*(commanded @ crosstalk.mT).split([3, 3, 3], dim=-1), fields)

    assert gradcheck(sent, (commanded, crosstalk))
    assert apart(sent(commanded, torch.eye(9, dtype=torch.float64)), sent(commanded, crosstalk)) > 1e-2


def test_second_derivatives_of_the_torch_matrix():
    layout = RectangularLayout(3)
    phases, elements, _ = draw(layout, (2,), ())

    def matrix(theta, phi, output, *given):
        return MeshModel(layout, backend="torch", **dict(zip(ELEMENTS, given, strict=True))).matrix(theta, phi, output)

    assert gradgradcheck(matrix, leaves([*phases, *elements.values()]))


# Against plain autograd.


@settings(max_examples=30)
@given(data=st.data())
def test_both_backends_have_the_gradients_of_the_dense_product(data):
    layout = LAYOUTS[data.draw(st.sampled_from([name for name in LAYOUTS if name != "rectangular 17"]))]
    many, chips = data.draw(
        st.sampled_from([((), ()), ((3,), ()), ((3,), (3,)), ((), (2,)), ((2, 3), (3,)), ((17,), ()), ((17,), (17,))])
    )
    drawn = draw(layout, many, chips, seed=data.draw(st.integers(0, 99)), vectors=data.draw(st.sampled_from([1, 2, 9])))
    expected = dense_gradients(layout, *drawn)
    for backend in BACKENDS:
        assert furthest(model_gradients(layout, backend, *drawn), expected) < 1e-11
    phases, elements, fields = drawn
    coarse = single(phases), single(elements), single([fields])[0]
    assert furthest(model_gradients(layout, "numba", *coarse), expected) < 2e-4


def test_gradients_beyond_one_light_cone(backend):
    drawn = draw(RectangularLayout(17), (), (), vectors=3)
    expected = dense_gradients(RectangularLayout(17), *drawn)
    assert furthest(model_gradients(RectangularLayout(17), backend, *drawn), expected) < 1e-11


def spoilt(elements, how):
    """Elements of a mesh in which light cannot be followed backwards."""
    if how == "a dead arm":
        elements["arms"][..., 2, 0] = 0.0
    elif how == "both arms dead":
        elements["arms"][..., 4, :] = 0.0
    elif how == "absorbers":
        elements["transmission"][..., [0, 3, -1]] = 0.0
    elif how == "much loss":
        elements["transmission"][..., 1:4] = 1e-4
    elif how == "all lossy":
        elements["transmission"][:] = 1e-4
    elif how == "all absorbed":
        elements["transmission"][:] = 0.0
    else:
        elements["arms"][..., ::2, 0], elements["arms"][..., 1::2, 1] = 1e-4, 0.0


@pytest.mark.parametrize(
    "batch", [((), ()), ((3,), ()), ((3,), (3,)), ((), (2,)), ((17,), ()), ((17,), (17,))], ids=str
)
@pytest.mark.parametrize(
    "how", ["a dead arm", "both arms dead", "absorbers", "much loss", "all lossy", "all absorbed", "lossy or dead arms"]
)
def test_gradients_where_light_cannot_be_followed_backwards(how, batch, backend):
    layout = TriangularLayout(4)
    for vectors in (1, 5):
        phases, elements, fields = draw(layout, *batch, vectors=vectors)
        spoilt(elements, how)
        expected = dense_gradients(layout, phases, elements, fields)
        assert furthest(model_gradients(layout, backend, phases, elements, fields), expected) < 1e-10


@pytest.mark.parametrize("many", [(), (2,), (16,)])
def test_sixty_lossy_columns(many, backend):
    layout = MeshLayout(4, tuple((column, mode) for column in range(60) for mode in range(column % 2, 3, 2)))
    phases, elements, fields = draw(layout, many, (), vectors=1)
    elements["transmission"][:] = 10 ** (-3 / 20)
    elements["arms"] *= 0.9  # the weaker arm of each column loses more than the stronger: reversal alone is hopeless
    elements["arms"][..., 0] *= 0.7
    got, expected = (
        model_gradients(layout, backend, phases, elements, 1e9 * fields),
        dense_gradients(layout, phases, elements, 1e9 * fields),
    )
    assert furthest(got, expected) < 1e-10


def test_a_hundred_chips_differ_in_what_is_dead(backend):
    layout = RectangularLayout(4)
    phases, elements, fields = draw(layout, (30,), (30,), vectors=1)
    elements["arms"][torch.arange(30), torch.arange(30) % 6, torch.arange(30) % 2] = 0.0
    expected = dense_gradients(layout, phases, elements, fields)
    assert furthest(model_gradients(layout, backend, phases, elements, fields), expected) < 1e-10


# Lossless meshes, whose gradients come from one matrix.


def lossless(layout, *, alike, seed=0):
    """Couplers of any angle, or none given."""
    if alike:
        return {}
    eta = torch.rand(2, len(layout.mzis), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return dict(zip(("eta_in", "eta_out"), 8.0 * eta - 4.0, strict=True))


def scattered(ports, columns, share, seed):
    """A mesh with MZIs wherever chance puts them, on even and on odd modes of a column."""
    rng = np.random.default_rng(seed)
    placed = []
    for column in range(columns):
        mode = 0
        while mode < ports - 1:
            if rng.random() < share:
                placed.append((column, mode))
                mode += 1
            mode += 1
    return MeshLayout(ports, tuple(placed))


LOSSLESS = {
    **{f"scattered {n}, {share}": scattered(n, 12, share, n) for n in (2, 7, 20, 33) for share in (0.1, 0.5)},
    **{f"rectangular {n}": RectangularLayout(n) for n in (1, 2, 3, 4, 7, 16, 17, 33)},
    **{f"triangular {n}": TriangularLayout(n) for n in (2, 5, 12)},
    "missing": RectangularLayout(19).without([(0, 2), (3, 1), (3, 3), (9, 17), *((c, c) for c in range(4, 12))]),
    "no MZI": MeshLayout(3, ()),
}


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("name", LOSSLESS)
def test_gradients_of_lossless_meshes(name, alike):
    layout = LOSSLESS[name]
    elements = lossless(layout, alike=alike)
    phases, _, fields = draw(layout, (), vectors=3)
    expected = dense_gradients(layout, phases, elements, fields)[:3]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
        given = [phase.to(dtype).requires_grad_() for phase in phases]
        model = MeshModel(layout, backend="numba", **{key: value.to(dtype) for key, value in elements.items()})
        sent = fields.to(torch.complex128 if dtype == torch.float64 else torch.complex64)
        loss = weighed(model.apply(*given, sent)) + weighed(model.matrix(*given))
        got = grad(loss, given, materialize_grads=True)
        assert furthest([value.double() for value in got], expected) < tolerance


@pytest.mark.parametrize("ports", [126, 127, 128, 129, 130, 131, 259])
def test_gradients_of_lossless_meshes_wider_than_a_panel(ports):
    for layout in (scattered(ports, 8, 0.6, ports), RectangularLayout(ports)):
        if len(layout.mzis) > 9000:
            continue  # the dense tree takes long
        phases, _, fields = draw(layout, (), vectors=2)
        elements = lossless(layout, alike=False)
        got, expected = (
            grad(
                weighed(MeshModel(layout, backend=backend, **elements).apply(*given, fields)),
                given,
                materialize_grads=True,
            )
            for backend in BACKENDS
            for given in [leaves(phases)]
        )
        assert furthest(got, expected) < 1e-11


@pytest.mark.parametrize("batch", [(3,), (17,)])
def test_gradients_of_many_settings_of_a_lossless_mesh(batch):
    layout = RectangularLayout(35)  # wide enough for matrices of one setting after the other
    phases, _, fields = draw(layout, batch, vectors=40)
    elements = lossless(layout, alike=False)
    got = leaves(phases)
    made = MeshModel(layout, **elements).apply(*got, fields)
    weighed(made).backward()
    for i in range(batch[0]):
        alone = leaves([phase[i] for phase in phases])
        weights = torch.linspace(0.3, 1.7, made.numel(), dtype=torch.float64).reshape(made.shape)[i]
        one = MeshModel(layout, backend="torch", **elements).apply(*alone, fields[i])
        (weights * (one.real + (one.imag - 0.2) ** 2)).sum().backward()
        assert furthest([value.grad[i] for value in got], [value.grad for value in alone]) < 1e-11


# mesh_vjp.


@pytest.mark.parametrize(("many", "chips"), [((), None), ((), ()), ((2,), ()), ((2, 1), (3,)), ((), (3,)), ((0,), ())])
def test_vjp_of_arrays_is_that_of_the_model(many, chips):
    layout = TriangularLayout(4)
    phases, elements, _ = draw(layout, many, chips)
    flaws = None if chips is None else MeshImperfections(**{k: e.numpy() for k, e in elements.items()})
    settings_made = MeshPhases(layout, *(p.numpy() for p in phases))
    batch = mesh_matrix(settings_made, flaws).shape[:-2]
    given = leaves([p.expand(*batch, p.shape[-1]) for p in phases])
    made = MeshModel(layout, **elements).matrix(*given)
    pull = draw(layout, batch, vectors=4, seed=7)[2]
    expected = grad(made, given, pull)
    got = mesh_vjp(settings_made, flaws, pull.numpy())
    assert furthest([torch.from_numpy(g) for g in got], expected) < 1e-11


def test_vjp_against_finite_differences_with_stuck_mzis():
    layout = RectangularLayout(4)
    phases, elements, _ = draw(layout, (), ())
    arrays = [p.numpy() for p in phases]
    stuck = np.full(6, np.nan)
    stuck[2] = 0.7
    flaws = MeshImperfections(**{k: e.numpy() for k, e in elements.items()}, stuck_theta=stuck, stuck_phi=stuck[::-1])
    pull = draw(layout, (), vectors=4, seed=7)[2].numpy()
    got = mesh_vjp(MeshPhases(layout, *arrays), flaws, pull)
    for which, values in enumerate(arrays):
        for k in range(len(values)):
            step = np.zeros_like(values)
            step[k] = 1e-6
            up, down = (
                mesh_matrix(MeshPhases(layout, *arrays[:which], moved, *arrays[which + 1 :]), flaws)
                for moved in (values + step, values - step)
            )
            slope = np.sum(pull.conj() * (up - down)).real / 2e-6
            assert abs(slope - got[which][k]) < 1e-8
    assert got[0][2] == got[1][3] == 0.0
    assert np.count_nonzero(got[0]) == np.count_nonzero(got[1]) == 5


def test_vjp_refuses_other_placements_and_shapes():
    layout = RectangularLayout(3)
    theta, output = np.zeros((2, 3)), np.zeros((2, 3))
    pull = np.ones((2, 3, 3), complex)
    with pytest.raises(MatrixError, match="standard placement"):
        mesh_vjp(MeshPhases(layout, theta, theta, output, placement=PhasePlacement(side="after")), None, pull)
    with pytest.raises(MatrixError, match="standard placement"):
        mesh_vjp(MeshPhases(layout, theta, theta, output, input=output), None, pull)
    with pytest.raises(MatrixError, match=r"cotangent has shape \(3, 3\).*\(2, 3, 3\)"):
        mesh_vjp(MeshPhases(layout, theta, theta, output), None, pull[0])
    with pytest.raises(MatrixError, match="eta_in has shape"):
        mesh_vjp(MeshPhases(layout, theta, theta, output), MeshImperfections.ideal(RectangularLayout(4)), pull)
