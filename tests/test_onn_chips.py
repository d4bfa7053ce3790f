"""Symbol error rates of networks on simulated meshes."""

import numpy as np
import pytest

from optinc_hw.errors import NetworkError
from optinc_hw.onn import ChipErrors, build_exact, simulate_chips, tile, widen_to_sigma_u
from optinc_hw.onn._chips import _arriving, _Optics
from optinc_hw.photonics import RectangularLayout, haar_unitary, mzi_matrix

NETWORK = build_exact(4, 8)
WIDE = widen_to_sigma_u(NETWORK, (4, 12, 12, 12, 12, 4))


@pytest.mark.parametrize(("network", "form"), [(NETWORK, "svd"), (NETWORK, "re_u"), (WIDE, "sigma_u")])
def test_perfect_meshes_make_no_error(network, form):
    found = simulate_chips(network, ChipErrors(), form, chips=2, inputs=500)
    assert found.rates.tolist() == [0.0, 0.0]
    assert found.symbols == 2000


def test_mzis_and_columns_by_counting():
    found = simulate_chips(NETWORK, ChipErrors(), chips=1, inputs=10, copies=3)
    # One 4 x 4, three 3 x 6 and one 4 x 6 product, each as U Sigma V.
    assert found.mzis == 3 * (16 + 3 * 21 + 25)
    assert found.columns == 9 + 3 * 10 + 11
    assert simulate_chips(WIDE, ChipErrors(), "sigma_u", chips=1, inputs=10).mzis == WIDE.mzis("sigma_u") == 294


def test_the_same_seed_gives_the_same_chips():
    errors = ChipErrors(phase_rad=0.03, coupler_rad=0.02, crosstalk=0.01, dac_bits=7, amplitude=0.02)
    first, second, other = (simulate_chips(NETWORK, errors, chips=3, inputs=300, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.rates, second.rates)
    assert not np.array_equal(first.rates, other.rates)


@pytest.mark.parametrize(
    "errors",
    [
        ChipErrors(phase_rad=0.1), ChipErrors(coupler_rad=0.2), ChipErrors(crosstalk=0.05), ChipErrors(dac_bits=4),
        ChipErrors(amplitude=0.05),
    ],
)  # fmt: skip
def test_every_error_counts(errors):
    assert simulate_chips(NETWORK, errors, chips=10, inputs=200).rate > 0.01


def test_copies_average_what_chips_do_apart():
    errors = ChipErrors(phase_rad=0.04, amplitude=0.02)
    one, nine = (simulate_chips(NETWORK, errors, chips=10, inputs=300, copies=copies).rate for copies in (1, 9))
    assert one > 0.05
    assert nine < 0.2 * one


def test_products_of_ideal_chips_are_the_matrix_and_errors_are_of_first_order():
    rng = np.random.default_rng(0)
    matrix = haar_unitary(5, rng).real * 0.7
    for form in ("svd", "re_u"):
        assert np.allclose(_Optics(matrix, form, ChipErrors()).draw(1, rng)[0], matrix, atol=1e-12)
        away = [
            np.sqrt(np.mean((_Optics(matrix, form, ChipErrors(phase_rad=s)).draw(300, rng) - matrix) ** 2))
            for s in (1e-3, 2e-3)
        ]
        assert away[1] / away[0] == pytest.approx(2.0, rel=0.1)


def test_an_attenuator_is_the_bar_state_of_an_mzi():
    sigma, shift = np.array([0.3, 0.8, 1.0]), 0.05

    class Shifted(np.random.Generator):
        def standard_normal(self, size=None):
            return np.ones(size)

    optics = _Optics(np.diag(sigma), "svd", ChipErrors(phase_rad=shift))
    ours = optics._attenuators(sigma, 1, Shifted(np.random.PCG64(0)))[0]
    for value, attenuation in zip(ours, sigma, strict=True):
        theta = 2.0 * np.arcsin(attenuation)
        ideal, real = (mzi_matrix(angle, 0.0)[0, 0] for angle in (theta, theta + shift))
        assert value == pytest.approx(real / ideal * attenuation)


@pytest.mark.parametrize("ports", [1, 2, 7])
def test_heat_arrives_as_the_sum_over_pairs(ports):
    places = np.array(RectangularLayout(ports).mzis, dtype=np.intp).reshape(-1, 2)
    phases = np.random.default_rng(0).normal(size=(3, 2, len(places)))
    expected = np.zeros_like(phases)
    for here, (column, port) in enumerate(places):
        for there, (other, another) in enumerate(places):
            if here != there:
                distance = np.hypot(column - other, (port - another) / 2.0)
                expected[..., here] += 0.03 * np.exp(1.0 - distance) * phases[..., there]
    assert _arriving(phases, places, 0.03) == pytest.approx(expected, abs=1e-14)


def test_amplitude_noise_counts_as_the_plan_amplifies_it():
    # Amplitude noise of s on all that is sent and received, against the plan's own noise amplification.
    noise = 0.02
    plan = tile(NETWORK, 8)
    assert plan.noise_gain[-1].max() * noise > 0.1  # of a level: some symbols must be wrong, few at half of it
    rates = [simulate_chips(NETWORK, ChipErrors(amplitude=s), chips=4, inputs=1000).rate for s in (noise, noise / 4)]
    assert rates[0] > 10.0 * rates[1]


@pytest.mark.parametrize(
    "fields", [{"phase_rad": -1.0}, {"amplitude": np.nan}, {"dac_bits": 0}, {"dac_bits": 8.0}, {"crosstalk": np.inf}]
)
def test_errors_that_cannot_be_are_refused(fields):
    with pytest.raises(NetworkError, match=next(iter(fields))):
        ChipErrors(**fields)


@pytest.mark.parametrize("counts", [{"chips": 0}, {"inputs": 1.5}, {"copies": 0}])
def test_counts_that_cannot_be_are_refused(counts):
    with pytest.raises(NetworkError, match=next(iter(counts))):
        simulate_chips(NETWORK, ChipErrors(), **counts)


@pytest.mark.parametrize("servers", [3, 5, 7])
def test_long_division_bears_about_what_digit_shifts_bear(servers):
    errors = ChipErrors(phase_rad=0.002, amplitude=0.003)
    assert simulate_chips(build_exact(servers, 8, slope=8.0), errors, chips=10, inputs=300).rate < 1e-3


def test_networks_that_are_not_in_blocks_are_refused():
    with pytest.raises(NetworkError, match="widen_to_sigma_u"):
        simulate_chips(NETWORK, ChipErrors(), "sigma_u", chips=1, inputs=10)
