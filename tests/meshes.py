"""Meshes as plain dense products in torch, settings drawn for them, and gradients of both: to compare with."""

import torch
from torch.autograd import grad

from optinc_hw.photonics import MeshLayout, MeshModel, RectangularLayout, TriangularLayout

ELEMENTS = ("eta_in", "eta_out", "transmission", "arms")
BACKENDS = ("numba", "torch")
LAYOUTS = {
    **{f"rectangular {n}": RectangularLayout(n) for n in (1, 2, 3, 5, 8, 9)},
    **{f"triangular {n}": TriangularLayout(n) for n in (2, 3, 8)},
    "rectangular 17": RectangularLayout(17),
    "gaps": RectangularLayout(5).without([(0, 2), (3, 1)]),
    "from data": MeshLayout(6, ((0, 4), (1, 1), (2, 2), (5, 0), (5, 4), (7, 3))),
    "no MZI": MeshLayout(3, ()),
}


def coupler(eta):
    cosine, sine = torch.cos(eta).to(torch.complex128), 1j * torch.sin(eta)
    return torch.stack([cosine, sine, sine, cosine], dim=-1).reshape(*eta.shape, 2, 2)


def on_upper_arm(phase):
    turn = torch.exp(1j * phase)
    return torch.diag_embed(torch.stack([turn, torch.ones_like(turn)], dim=-1))


def dense_matrix(layout, theta, phi, output=None, *, eta_in=None, eta_out=None, transmission=None, arms=None):
    """One n x n matrix an MZI, multiplied in the order of the light; plain autograd follows."""
    n, mzis = layout.ports, len(layout.mzis)
    quarter = torch.full((mzis,), torch.pi / 4, dtype=torch.float64)
    eta_in, eta_out = quarter if eta_in is None else eta_in, quarter if eta_out is None else eta_out
    losses = torch.ones(mzis, 2, dtype=torch.float64) if arms is None else arms
    losses = losses if transmission is None else losses * transmission[..., None]
    cells = coupler(eta_out) @ torch.diag_embed(losses).to(torch.complex128) @ on_upper_arm(theta)
    cells = cells @ coupler(eta_in) @ on_upper_arm(phi)
    made = torch.eye(n, dtype=torch.complex128).expand(*cells.shape[:-3], n, n)
    for k, (_, mode) in enumerate(layout.mzis):
        place = torch.eye(n, dtype=torch.complex128)[:, mode : mode + 2]
        rest = torch.eye(n, dtype=torch.complex128) - place @ place.mT
        made = (rest + place @ cells[..., k, :, :] @ place.mT) @ made
    return made if output is None else torch.exp(1j * output)[..., None] * made


def draw(layout, settings=(), chips=None, *, seed=0, vectors=2):
    """Random theta, phi, output; elements (none without ``chips``); and fields, in double precision."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)

    n, mzis = layout.ports, len(layout.mzis)
    phases = uniform(-7.0, 7.0, *settings, mzis), uniform(-7.0, 7.0, *settings, mzis), uniform(-4.0, 4.0, *settings, n)
    elements = {} if chips is None else {
        "eta_in": uniform(0.5, 1.1, *chips, mzis), "eta_out": uniform(0.5, 1.1, *chips, mzis),
        "transmission": uniform(0.8, 1.0, *chips, mzis), "arms": uniform(0.6, 1.0, *chips, mzis, 2),
    }  # fmt: skip
    fields = torch.randn(*settings, n, vectors, generator=generator, dtype=torch.complex128)
    return phases, elements, fields


def single(values):
    """Values in single precision."""
    if isinstance(values, dict):
        return dict(zip(values, single(tuple(values.values())), strict=True))
    return tuple(v.to(torch.complex64 if v.is_complex() else torch.float32) for v in values)


def apart(got, expected):
    """Largest difference, relative to the largest number expected."""
    assert got.shape == expected.shape
    if not got.numel():
        return 0.0
    scale = max(float(expected.detach().abs().max()), 1e-300)
    return float((got.detach() - expected.detach()).abs().max()) / scale


def leaves(values):
    return [value.detach().clone().requires_grad_() for value in values]


def weighed(made):
    """A real number that depends on all real and imaginary parts, unevenly and not linearly."""
    weights = torch.linspace(0.3, 1.7, made.numel(), dtype=made.real.dtype).reshape(made.shape)
    return (weights * (made.real + (made.imag - 0.2) ** 2)).sum()


def model_gradients(layout, backend, phases, elements, fields):
    """Gradients by phases, elements and fields of the outputs and the matrix together."""
    given = leaves([*phases, *elements.values(), fields])
    model = MeshModel(layout, backend=backend, **dict(zip(elements, given[3:-1], strict=True)))
    loss = weighed(model.apply(*given[:3], given[-1])) + weighed(model.matrix(*given[:3]))
    return grad(loss, given, materialize_grads=True)


def dense_gradients(layout, phases, elements, fields):
    """The same by plain autograd through dense products."""
    given = leaves([*phases, *elements.values(), fields])
    made = dense_matrix(layout, *given[:3], **dict(zip(elements, given[3:-1], strict=True)))
    return grad(weighed(made @ given[-1]) + weighed(made), given, materialize_grads=True)


def furthest(got, expected):
    return max(apart(a.to(b.dtype), b) for a, b in zip(got, expected, strict=True))
