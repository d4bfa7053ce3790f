"""`MeshModel` as a part of torch's autograd: what a forward pass keeps, and use and misuse of gradients."""

import gc
import tracemalloc

import pytest
import torch
from meshes import BACKENDS, apart, dense_gradients, dense_matrix, draw, furthest, leaves, weighed
from torch.autograd import grad

from optinc_hw.photonics import MeshLayout, MeshModel, RectangularLayout


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


# Memory between forward and backward.


def kept_bytes(layout, backend, many, vectors):
    """Bytes that a forward pass keeps for its backward pass, without inputs and outputs."""
    phases, elements, fields = draw(layout, many, (), vectors=vectors)
    elements["transmission"][:], elements["arms"][:] = 1.0, 1.0  # with much loss some inputs are saved
    given = leaves([*phases, *elements.values(), fields])
    model = MeshModel(layout, backend=backend, **dict(zip(elements, given[3:-1], strict=True)))
    model.apply(*given[:3], given[-1])  # compiled and imported
    own = {value.untyped_storage().data_ptr() for value in given}
    saved = {}

    def keep(value):
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return value

    gc.collect()
    tracemalloc.start()
    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
            got = model.apply(*given[:3], given[-1])
        gc.collect()
        arrays = tracemalloc.get_traced_memory()[0]  # numpy's, which torch does not see
    finally:
        tracemalloc.stop()
    weighed(got).backward()
    return arrays + sum(saved.values())


def stack(columns):
    return MeshLayout(8, tuple((column, mode) for column in range(columns) for mode in range(column % 2, 7, 2)))


@pytest.mark.parametrize("columns", [8, 80, 800])
def test_one_setting_keeps_a_matrix_however_many_vectors(columns):
    layout = stack(columns)
    mzis = len(layout.mzis)
    elements_alike = 200 * mzis  # couplings and what their own derivatives keep, and cosines and sines of phases
    few, many = (kept_bytes(layout, "numba", (), vectors) for vectors in (1, 2000))
    assert few < 16 * 8 * 16 * 4 + elements_alike + 40_000
    assert many - few <= 2 * 16 * 8 * 2000  # the outputs alone


def test_settings_keep_a_few_numbers_a_phase_and_a_mode():
    for columns in (8, 80, 800):
        layout = stack(columns)
        mzis, n, settings_made = len(layout.mzis), 8, 64
        for vectors in (1, 3):
            kept = kept_bytes(layout, "numba", (settings_made,), vectors)
            assert kept < 8 * settings_made * (8 * mzis + 16 * n * vectors) + 200 * mzis + 40_000


def test_the_torch_path_keeps_no_columns_of_settings():
    kept_bytes(stack(8), "torch", (16,), 1)  # what Python itself allocates on a first call is no field
    slopes = []
    for vectors in (1, 4):
        shallow, deep = (kept_bytes(stack(columns), "torch", (16,), vectors) for columns in (8, 80))
        slopes.append(deep - shallow)
    one_column_more = 16 * 8 * (4 - 1) * 16  # 16 settings of 8 modes, 3 vectors more, 16 bytes each
    assert slopes[1] - slopes[0] < (80 - 8) * one_column_more / 10  # vectors do not add to what a column costs


# Use and misuse.


def test_outputs_may_be_changed_in_place():
    layout = RectangularLayout(5)
    phases, _, fields = draw(layout, ())
    found = []
    for in_place in (False, True):
        given = leaves(phases)
        made = MeshModel(layout).apply(*given, fields)
        made = made.mul_(2j).add_(1.0) if in_place else 2j * made + 1.0
        found.append(grad(weighed(made), given))
    assert furthest(*found) < 1e-13


@pytest.mark.parametrize("many", [(), (3,), (20,)])
def test_backward_can_be_repeated_and_inputs_stay(many, backend):
    layout = RectangularLayout(4)
    phases, elements, fields = draw(layout, many, (), vectors=1)
    given = leaves([*phases, *elements.values(), fields])
    before = [value.detach().clone() for value in given]
    model = MeshModel(layout, backend=backend, **dict(zip(elements, given[3:-1], strict=True)))
    for made in (model.apply(*given[:3], given[-1]), model.matrix(*given[:3])):
        value = made.detach().clone()
        first = grad(weighed(made), given, retain_graph=True, materialize_grads=True)
        second = grad(weighed(made), given, retain_graph=True, materialize_grads=True)
        doubled = grad(2 * weighed(made), given, materialize_grads=True)
        for a, b, c in zip(first, second, doubled, strict=True):
            assert torch.equal(a, b)
            torch.testing.assert_close(c, 2 * a, rtol=1e-12, atol=1e-14)
        assert torch.equal(made, value)
    assert all(map(torch.equal, given, before))


@pytest.mark.parametrize("many", [(), (3,), (20,)])
def test_strided_expanded_and_conjugated_inputs(many, backend):
    layout = RectangularLayout(4)
    phases, elements, fields = draw(layout, many, (), vectors=3)
    expected = dense_gradients(layout, phases, elements, fields)
    spread = [torch.stack([p, 0 * p], dim=-1)[..., 0] for p in phases]
    turned = torch.complex(phases[0], -phases[0]).conj().imag  # lazily negated
    sent = fields.conj().resolve_conj().conj().mT.contiguous().mT  # lazily conjugated, columns first
    spaced = {name: torch.stack([e, 0 * e])[0].mT.contiguous().mT if e.ndim > 1 else e for name, e in elements.items()}
    model = MeshModel(layout, backend=backend, **spaced)
    given = [turned.requires_grad_(), *(p.requires_grad_() for p in spread[1:]), sent.requires_grad_()]
    loss = weighed(model.apply(*given[:3], given[3])) + weighed(model.matrix(*given[:3]))
    got = grad(loss, given)
    assert furthest(got, [*expected[:3], expected[-1]]) < 1e-11

    one = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    made = model.matrix(one.expand(*many, 6), one.expand(6), one.expand(*many, 4))
    same = dense_matrix(layout, one.expand(*many, 6), one.expand(6), one.expand(*many, 4), **elements)
    # The gradient of a sum comes as one number, expanded; that of a conjugate is conjugated lazily.
    for how in (lambda m: m.real.sum(), lambda m: m.imag.sum(), lambda m: (m.conj() * (1 + 2j)).real.sum()):
        assert apart(grad(how(made), one, retain_graph=True)[0], grad(how(same), one, retain_graph=True)[0]) < 1e-11


@pytest.mark.parametrize("many", [(), (3,), (20,)])
def test_only_what_is_asked_for_is_differentiated(many, backend):
    layout = RectangularLayout(4)
    phases, elements, fields = draw(layout, many, (), vectors=1)
    expected = dense_gradients(layout, phases, elements, fields)
    for chosen in range(8):
        given = [
            v.detach().clone().requires_grad_(i == chosen) for i, v in enumerate([*phases, *elements.values(), fields])
        ]
        model = MeshModel(layout, backend=backend, **dict(zip(elements, given[3:-1], strict=True)))
        loss = weighed(model.apply(*given[:3], given[-1])) + weighed(model.matrix(*given[:3]))
        assert apart(grad(loss, given[chosen])[0], expected[chosen]) < 1e-11


def test_nothing_is_differentiated_without_gradients(backend):
    layout = RectangularLayout(4)
    phases, elements, fields = draw(layout, (), ())
    given = leaves([*phases, *elements.values()])
    model = MeshModel(layout, backend=backend, **dict(zip(elements, given[3:], strict=True)))
    with torch.no_grad():
        assert not model.matrix(*given[:3]).requires_grad
    with torch.inference_mode():
        assert model.apply(*given[:3], fields).is_inference()
    later = model.matrix(*given[:3])  # a call without gradients takes none from later ones
    assert later.requires_grad
    assert all(bool(g.abs().sum() > 0) for g in grad(weighed(later), given))
    fixed = MeshModel(layout, backend=backend, **elements)
    assert not fixed.matrix(*phases).requires_grad
    with torch.inference_mode():
        fixed.matrix(*phases)
    assert fixed.matrix(given[0], *phases[1:]).requires_grad


@pytest.mark.parametrize("many", [(), (3,), (20,)])
def test_second_derivatives_are_refused_never_zero(many):
    layout = RectangularLayout(4)
    phases, elements, fields = draw(layout, many, (), vectors=1)
    for backend in BACKENDS:
        given = leaves([*phases, fields])
        model = MeshModel(layout, backend=backend, **elements)
        for made in (model.matrix(*given[:3]), model.apply(*given)):
            if backend == "torch" and (many == () or made.shape[-1] > 1):
                continue  # plain operations, with second derivatives
            first = grad(made.real.sum(), given[1], create_graph=True)[0]  # linear: no gradient of the gradient's own
            for origin in given[:2]:
                with pytest.raises(RuntimeError, match=r"differentiated again.*torch"):
                    grad(first.sum(), origin, retain_graph=True)
