"""Random unitaries, fidelity and the nearest unitary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.errors import MatrixError
from optinc_hw.photonics import fidelity, haar_unitary, nearest_unitary

SEEDS = st.integers(0, 2**32 - 1)


def random_complex(n, rng):
    return rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))


@given(st.integers(1, 12), SEEDS)
def test_haar_unitaries_are_unitary_and_follow_the_generator(n, seed):
    unitary = haar_unitary(n, np.random.default_rng(seed))
    np.testing.assert_allclose(unitary @ unitary.conj().T, np.eye(n), atol=1e-13)
    np.testing.assert_array_equal(unitary, haar_unitary(n, np.random.default_rng(seed)))


def test_haar_measure_has_its_moments():
    rng = np.random.default_rng(0)
    draws = np.stack([haar_unitary(3, rng) for _ in range(4000)])
    # |u|^2 is Beta(1, n-1), a single trace has unit variance, phases are uniform: a QR with R's phases left in fails.
    np.testing.assert_allclose(np.mean(np.abs(draws) ** 2, axis=0), 1 / 3, atol=0.02)
    np.testing.assert_allclose(np.mean(np.abs(draws) ** 4, axis=0), 1 / 6, atol=0.02)
    assert np.mean(np.abs(np.trace(draws, axis1=1, axis2=2)) ** 2) == pytest.approx(1.0, abs=0.1)
    assert np.abs(np.mean(draws, axis=0)).max() < 0.05


def test_haar_unitary_refuses_no_rows():
    with pytest.raises(MatrixError, match="n = 0"):
        haar_unitary(0, np.random.default_rng(0))


@given(st.integers(1, 8), SEEDS)
def test_nearest_unitary_is_the_polar_factor(n, seed):
    rng = np.random.default_rng(seed)
    unitary, gauss = haar_unitary(n, rng), random_complex(n, rng)
    stretch = gauss @ gauss.conj().T + np.eye(n)
    np.testing.assert_allclose(nearest_unitary(stretch @ unitary), unitary, atol=1e-9)
    np.testing.assert_allclose(nearest_unitary(0.9 * unitary), unitary, atol=1e-12)


@given(st.integers(2, 8), SEEDS, st.floats(0.1, 10.0), st.sampled_from(["none", "global", "ports"]))
def test_fidelity_of_equal_matrices_is_one_whatever_their_size(n, seed, scale, gauge):
    matrix = random_complex(n, np.random.default_rng(seed))
    assert fidelity(matrix, scale * matrix, gauge=gauge) == pytest.approx(1.0, abs=1e-12)


@given(st.integers(2, 8), SEEDS)
def test_each_gauge_forgives_what_it_says(n, seed):
    rng = np.random.default_rng(seed)
    first, second = random_complex(n, rng), random_complex(n, rng)
    none, overall, ports = (fidelity(first, second, gauge=gauge) for gauge in ("none", "global", "ports"))
    assert 0.0 <= none <= overall + 1e-12
    assert overall <= ports + 1e-12 <= 1.0 + 2e-12
    turned = np.exp(1.1j) * first
    assert fidelity(first, turned) == pytest.approx(1.0, abs=1e-12)
    assert fidelity(first, turned, gauge="none") == pytest.approx(np.cos(1.1) ** 2, abs=1e-9)
    assert fidelity(first, -first, gauge="none") == 0.0


@given(
    st.integers(2, 8),
    SEEDS,
    st.sampled_from(["dense", "unitary", "permutation", "blocks", "nearly diagonal", "sparse"]),
)
def test_port_phases_never_lower_the_ports_gauge(n, seed, kind):
    rng = np.random.default_rng(seed)
    matrix = {
        "dense": lambda: random_complex(n, rng),
        "unitary": lambda: haar_unitary(n, rng),
        "permutation": lambda: np.eye(n)[rng.permutation(n)],
        "blocks": lambda: np.kron(np.eye(n), haar_unitary(2, rng)),
        "sparse": lambda: random_complex(n, rng) * (rng.random((n, n)) < 0.4) + 1e-3 * np.eye(n),
        "nearly diagonal": lambda: nearest_unitary(np.eye(n) + 0.05 * random_complex(n, rng)),
    }[kind]()
    left, right = np.exp(2j * np.pi * rng.random((2, len(matrix))))
    assert fidelity(matrix, left[:, None] * matrix * right, gauge="ports") == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("first", "second", "gauge", "message"),
    [
        (np.eye(2), np.eye(3), "global", r"shapes \(2, 2\) and \(3, 3\)"),
        (np.eye(2), np.zeros((2, 2)), "global", "zero"),
        (np.eye(2), np.full((2, 2), np.nan), "ports", "NaN or Inf"),
        (np.ones((2, 3)), np.ones((2, 3)), "none", "square"),
        (np.eye(2), np.eye(2), "port", "unknown gauge 'port'; choose"),
    ],
)
def test_what_cannot_be_compared_is_refused(first, second, gauge, message):
    with pytest.raises(MatrixError, match=message):
        fidelity(first, second, gauge=gauge)
