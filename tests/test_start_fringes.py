"""Fringes of single MZIs, against matrices multiplied out in the test."""

import numpy as np
import pytest

from calibration._start_fringes import (
    ANGLES,
    Couplers,
    PairSweep,
    chain_states,
    fringe_costs,
    known_light_costs,
    minima,
    rivals,
)


def coupler(eta):
    return np.array([[np.cos(eta), 1j * np.sin(eta)], [1j * np.sin(eta), np.cos(eta)]])


def outputs(theta, phi, fields, excess=0.0):
    """Powers of both outputs by matrix products."""
    half = coupler(np.pi / 4 + excess / 2)
    result = [
        np.abs(half @ np.diag([np.exp(1j * t), 1]) @ half @ np.diag([np.exp(1j * p), 1]) @ fields) ** 2
        for t, p in zip(theta, phi, strict=True)
    ]
    return np.array(result).T


def sweep_of(rng, offset, fields, points=8, excess=0.0, lit=0, phi_offset=0.0, sigma=1e-3):
    theta, phi = rng.uniform(0.0, 2.0 * np.pi, (2, points))
    upper, lower = outputs(theta + offset, phi + phi_offset, fields, excess)
    columns = (values[:, None] for values in (theta, phi, upper, lower))
    return PairSweep(*columns, np.array([sigma]), np.array([lit]))


def circle(angle, period=2.0 * np.pi):
    return (angle + 0.5 * period) % period - 0.5 * period


@pytest.mark.parametrize("seed", range(10))
def test_unknown_light_gives_the_offset_but_for_pi(seed):
    rng = np.random.default_rng(seed)
    offset = rng.uniform(0.0, 2.0 * np.pi)
    fields = rng.standard_normal(2) + 1j * rng.standard_normal(2)
    costs = fringe_costs(sweep_of(rng, offset, fields, sigma=0.02 * np.linalg.norm(fields) ** 2), Couplers())
    angle, sigma, _ = minima(costs)
    assert abs(circle(angle[0] - offset, np.pi)) < 0.05
    assert 0.0 < sigma[0] < 0.3
    assert rivals(costs, angle)[0] > 10.0
    np.testing.assert_allclose(costs[:24], costs[24:], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_couplers_off_the_middle_are_allowed_for(seed):
    rng = np.random.default_rng(seed)
    offset, fields = rng.uniform(0.0, 2.0 * np.pi), rng.standard_normal(2) + 1j * rng.standard_normal(2)
    sweep = sweep_of(rng, offset, fields, points=12, excess=0.13, sigma=0.01 * np.linalg.norm(fields) ** 2)
    known, ideal = (fringe_costs(sweep, Couplers(excess)).min() for excess in (0.13, 0.0))
    assert known < ideal
    assert abs(circle(minima(fringe_costs(sweep, Couplers(0.13)))[0][0] - offset, np.pi)) < 0.05


@pytest.mark.parametrize("port", [1, -1])
def test_light_at_one_known_input_leaves_nothing_open(port):
    rng = np.random.default_rng(3)
    fields = np.array([1.0, 0.0]) if port == 1 else np.array([0.0, 1.0])
    sweep = sweep_of(rng, 4.0, fields, points=4, lit=port, sigma=0.02)
    angle, _, cost = minima(fringe_costs(sweep, Couplers()))
    assert abs(circle(angle[0] - 4.0)) < 0.05
    assert cost[0] < 20.0


def test_one_detector_is_enough():
    rng = np.random.default_rng(5)
    sweep = sweep_of(rng, 2.0, np.array([0.8, 0.5j]), points=16, sigma=0.01)
    blind = PairSweep(
        sweep.theta, sweep.phi, sweep.upper_w, np.full_like(sweep.lower_w, np.nan), sweep.sigma_w, sweep.lit
    )
    assert abs(circle(minima(fringe_costs(blind, Couplers()))[0][0] - 2.0, np.pi)) < 0.1


def test_a_heater_without_effect_shows_in_the_cost():
    rng = np.random.default_rng(6)
    sweep = sweep_of(rng, 2.0, np.array([0.8, 0.5j]), points=12, sigma=0.01)
    upper, lower = outputs(np.full(12, 2.0), sweep.phi[:, 0], np.array([0.8, 0.5j]))
    dead = PairSweep(sweep.theta, sweep.phi, upper[:, None], lower[:, None], sweep.sigma_w, sweep.lit)
    still = PairSweep(np.zeros((12, 1)), sweep.phi, upper[:, None], lower[:, None], sweep.sigma_w, sweep.lit)
    assert fringe_costs(dead, Couplers()).min() > 50.0
    assert fringe_costs(still, Couplers()).min() < 1.0


@pytest.mark.parametrize("seed", range(5))
def test_known_light_gives_both_offsets(seed):
    rng = np.random.default_rng(seed)
    fields = np.array([0.8, 0.6 * np.exp(2.0j)])
    theta, phi = ANGLES[rng.integers(48)], ANGLES[rng.integers(48)]
    sweep = sweep_of(rng, theta, fields, points=6, phi_offset=phi, sigma=0.01)
    known = tuple(np.full((6, 1), field) for field in fields)
    costs = known_light_costs(known, sweep, Couplers(), ANGLES[:, None], ANGLES)[:, :, 0]
    assert np.unravel_index(np.argmin(costs), costs.shape) == (
        int(np.argmin(np.abs(ANGLES - theta))),
        int(np.argmin(np.abs(ANGLES - phi))),
    )
    assert costs.min() < 1e-12


def test_states_of_a_chain_are_those_of_least_total_cost():
    rng = np.random.default_rng(0)
    costs = rng.uniform(0.0, 5.0, (4, 2, 2))
    every = [np.array([(s >> i) & 1 for i in range(5)]) for s in range(32)]
    totals = np.array([sum(costs[i, s[i], s[i + 1]] for i in range(4)) for s in every])
    best = every[int(np.argmin(totals))]
    states, margin = chain_states(costs)
    np.testing.assert_array_equal(states, best)
    for i in range(5):
        other = min(total for s, total in zip(every, totals, strict=True) if s[i] != best[i])
        assert margin[i] == pytest.approx(other - totals.min())


def test_a_chain_without_choice_at_its_ends():
    costs = np.full((2, 2, 2), np.inf)
    costs[0, 0], costs[1, :, 0] = (3.0, 1.0), (1.0, 2.0)
    states, margin = chain_states(costs)
    np.testing.assert_array_equal(states, [0, 1, 0])
    assert margin[1] == pytest.approx(1.0)
    assert np.isinf(margin[[0, 2]]).all()
