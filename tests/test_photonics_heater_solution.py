"""Powers and voltages for wanted phases: against brute force over all whole turns and a plain integer programme."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from twins import imperfect_twin

from optinc_hw.errors import LimitError, MatrixError
from optinc_hw.photonics import ChipLayout, HeaterModel, TwinParameters, solve_heaters, solve_powers

SEEDS = st.integers(0, 2**32 - 1)
TWO_PI = 2.0 * np.pi
PER_WATT = np.pi / 0.020
NEIGHBOURS = np.eye(3, k=1) + np.eye(3, k=-1)


def plain(size=3, **effects):
    return HeaterModel(np.full(size, PER_WATT), np.full(size, 1200.0), **effects)


@pytest.mark.parametrize(
    ("model", "phases", "message"),
    [
        (plain(), np.zeros(2), r"phases have shape \(2,\); 3 heaters need \(3,\)"),
        (plain(), [0.0, np.nan, 0.0], "phases hold NaN or Inf"),
        (plain(crosstalk=np.ones((3, 3))), np.zeros(3), "crosstalk matrix is singular"),
    ],
)
def test_questions_that_make_no_sense_are_refused(model, phases, message):
    with pytest.raises(MatrixError, match=message):
        solve_heaters(model, phases)


def random_model(rng, size, strength, signed, limited):
    """Heaters with random crosstalk up to ``strength``, and limits in W, V or A that often bind."""
    least = -1.0 if signed else 0.0
    crosstalk = np.where(np.eye(size), 1.0, strength * rng.uniform(least, 1.0, (size, size)))
    model = HeaterModel(
        PER_WATT * rng.uniform(0.7, 1.3, size),
        rng.uniform(1000.0, 1400.0, size),
        offset_rad=rng.uniform(0.0, TWO_PI, size),
        crosstalk=crosstalk,
        beta_per_w=0.8,
    )
    if not limited:
        return model
    allowed = rng.uniform(0.5, 1.6, size) * TWO_PI / model.efficiency_rad_per_w
    volts = model.voltage(allowed)
    return [
        replace(model, max_power_w=allowed),
        replace(model, max_voltage_v=volts),
        replace(model, max_current_a=allowed / volts),
    ][rng.integers(3)]


def all_settings(model, phases):
    """Powers (settings, H) of all whole turns within three of the least, negative ones too."""
    fraction = np.mod(phases - model.passive_phase(), TWO_PI)
    whole = np.array(list(itertools.product(range(-2, 4), repeat=len(model))), float)
    own = np.linalg.solve(model.crosstalk, (fraction + TWO_PI * whole).T).T
    return own / model.efficiency_rad_per_w


def largest(model):
    return np.min(list(model.power_limits().values()), axis=0)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5), st.sampled_from([0.0, 0.015, 0.1, 0.2]), st.booleans(), st.booleans(), SEEDS)
def test_the_answer_is_the_best_of_all(size, strength, signed, limited, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, size, strength, signed, limited)
    phases = rng.uniform(-20.0, 20.0, size)
    powers = all_settings(model, phases)
    fits = ((powers >= -1e-12) & (powers <= largest(model) + 1e-12)).all(axis=1)
    if not fits.any():
        with pytest.raises(LimitError, match=r"heater \d would need .* allows .* mW\. Raise the limit") as refusal:
            solve_heaters(model, phases)
        check_need(str(refusal.value), model, powers)
        return
    best = solve_heaters(model, phases)
    assert best.proven
    np.testing.assert_allclose(best.total_power_w, powers[fits].sum(axis=1).min(), rtol=1e-9)
    np.testing.assert_allclose(best.lower_bound_w, best.total_power_w, rtol=2e-9)
    np.testing.assert_allclose(model.phases(model.power(best.voltage_v)), phases + TWO_PI * best.wraps, atol=1e-7)
    assert (best.power_w >= 0.0).all()
    assert (best.power_w <= largest(model)).all()


def check_need(message, model, powers):
    """What the message says a heater needs at the least holds for all settings that keep the other limits."""
    assert "not proven" not in message
    found = re.search(r"heater (\d) would need ([\d.]+) mW at the least", message)
    if found is None:
        return
    heater, need = int(found[1]), float(found[2]) * 1e-3
    others = np.delete(np.arange(len(model)), heater)
    kept = (powers >= -1e-12).all(axis=1) & (powers[:, others] <= largest(model)[others] + 1e-12).all(axis=1)
    assert need > largest(model)[heater] - 1e-5
    assert not kept.any() or powers[kept, heater].min() > need - 1e-5


@settings(max_examples=40, deadline=None)
@given(st.booleans(), SEEDS)
def test_the_limit_of_the_total_power_is_kept_or_named(signed, seed):
    rng = np.random.default_rng(seed)
    model, phases = random_model(rng, 4, 0.2, signed, limited=False), rng.uniform(0.0, TWO_PI, 4)
    powers = all_settings(model, phases)
    least = powers[(powers >= -1e-12).all(axis=1)].sum(axis=1).min()
    enough = solve_heaters(replace(model, max_total_power_w=1.0001 * least), phases)
    np.testing.assert_allclose(enough.total_power_w, least, rtol=1e-9)
    need = re.escape(f"{least:.4g} W at the least for the asked phases; max_total_power_w")
    with pytest.raises(LimitError, match=f"all heaters together would need {need}"):
        solve_heaters(replace(model, max_total_power_w=0.999 * least), phases)


def neighbours(sites, strength, rng=None):
    """Crosstalk that falls by e every 0.6 pitches; of random sign with ``rng``."""
    distance = np.linalg.norm(sites[:, None] - sites[None], axis=-1)
    heat = strength * np.exp((1.0 - np.maximum(distance, 1.0)) / 0.6)
    signs = 1.0 if rng is None else rng.choice([-1.0, 1.0], heat.shape)
    return np.where(distance == 0.0, 1.0, signs * heat)


def plain_programme(model, phases):
    """Least total power by one integer programme in powers and turns, without any of the solver's bounds."""
    size, per_turn = len(model), TWO_PI / model.efficiency_rad_per_w
    target = (phases - model.passive_phase()) / TWO_PI
    found = milp(
        np.concatenate([per_turn, np.zeros(size)]),
        integrality=np.repeat([0, 1], size),
        bounds=Bounds(np.repeat([0.0, -20.0], size), np.repeat([5.0, 20.0], size)),
        constraints=LinearConstraint(np.hstack([model.crosstalk, -np.eye(size)]), target, target),
        options={"mip_rel_gap": 0.0},
    )
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize(("strength", "signed"), [(0.015, False), (0.1, False), (0.015, True), (0.03, True)])
def test_thirty_heaters_agree_with_a_plain_integer_programme(strength, signed):
    rng = np.random.default_rng(7)
    sites = ChipLayout(4).heater_sites[:-1]
    sites = np.vstack([sites, sites[-2:] + np.array([3.0, 0.0])])
    model = plain(30, crosstalk=neighbours(sites, strength, rng if signed else None))
    phases = rng.uniform(0.0, TWO_PI, 30)
    best = solve_heaters(model, phases)
    assert best.proven
    np.testing.assert_allclose(best.total_power_w, plain_programme(model, phases), rtol=1e-5)


def test_an_eight_port_chip_is_proven_by_bounds_alone():
    rng = np.random.default_rng(0)
    model = plain(89, crosstalk=neighbours(ChipLayout(8).heater_sites, 0.015))
    for _ in range(10):
        phases = rng.uniform(0.0, TWO_PI, 89)
        best = solve_heaters(model, phases, effort=0)
        assert best.proven
        np.testing.assert_allclose(best.lower_bound_w, best.total_power_w, rtol=2e-9)


def test_without_effort_nothing_is_claimed():
    """Strong crosstalk of both signs is beyond bounds: what is returned still holds, and lies above its lower bound."""
    rng = np.random.default_rng(3)
    model = plain(30, crosstalk=np.eye(30) + np.where(np.eye(30), 0.0, 0.1 * rng.uniform(-1.0, 1.0, (30, 30))))
    phases = rng.uniform(0.0, TWO_PI, 30)
    quick = solve_heaters(model, phases, effort=0)
    assert not quick.proven
    assert quick.lower_bound_w < quick.total_power_w
    np.testing.assert_allclose(model.phases(quick.power_w), phases + TWO_PI * quick.wraps, atol=1e-7)
    with pytest.raises(LimitError, match="best attempt found; that less is impossible is not proven"):
        solve_heaters(replace(model, max_total_power_w=0.99 * quick.total_power_w), phases, effort=0)


def test_with_too_many_undecided_heaters_no_search_is_started():
    rng = np.random.default_rng(0)
    chain = np.diag(rng.uniform(-0.2, 0.2, 1199), 1) + np.diag(rng.uniform(-0.2, 0.2, 1199), -1)
    model, phases = plain(1200, crosstalk=np.eye(1200) + chain), rng.uniform(0.0, TWO_PI, 1200)
    best = solve_heaters(model, phases)
    assert not best.proven
    assert best.lower_bound_w < best.total_power_w
    np.testing.assert_allclose(model.phases(best.power_w), phases + TWO_PI * best.wraps, atol=1e-7)
    tight = np.where(best.power_w < best.power_w.max(), np.inf, 0.01)
    kept = solve_heaters(replace(model, max_power_w=tight), phases)
    assert (kept.power_w <= tight).all()
    np.testing.assert_allclose(model.phases(kept.power_w), phases + TWO_PI * kept.wraps, atol=1e-7)
    with pytest.raises(LimitError, match="in the best attempt found; that none fits is not proven, which takes"):
        solve_heaters(replace(model, max_power_w=0.0422), phases)


@pytest.mark.parametrize("other", [-0.9, 0.9, 2.0])
def test_crosstalk_as_strong_as_the_heaters_themselves(other):
    """Beyond 1 two heaters swap their parts; rows of the inverse then fall with the heater's own turns."""
    model, rng = plain(2, crosstalk=np.array([[1.0, other], [other, 1.0]])), np.random.default_rng(0)
    whole = np.array(list(itertools.product(range(-25, 26), repeat=2)), float)
    for phases in rng.uniform(0.0, TWO_PI, (10, 2)):
        powers = np.linalg.solve(model.crosstalk, (phases + TWO_PI * whole).T).T / PER_WATT
        best = solve_heaters(model, phases)
        assert best.proven
        np.testing.assert_allclose(best.total_power_w, powers[(powers >= 0.0).all(axis=1)].sum(axis=1).min())


@pytest.mark.parametrize("turns", [-3, 0, 1])
@pytest.mark.parametrize("noise", [-1e-15, 0.0, 1e-15])
def test_whole_turns_need_no_power_whatever_the_rounding(turns, noise):
    model = plain(crosstalk=np.eye(3) + 0.015 * NEIGHBOURS, offset_rad=1.3)
    best = solve_heaters(model, 1.3 + TWO_PI * turns + noise * np.array([1.0, -1.0, 1.0]))
    np.testing.assert_allclose(best.power_w, 0.0, atol=1e-12)
    np.testing.assert_array_equal(best.wraps, -turns)
    twin = TwinParameters.nominal(2, input_amplitude=0.1, lo_amplitude=0.1)
    assert (solve_powers(twin, np.full(len(twin.offset), TWO_PI * turns + noise)) < 1e-12).all()


def test_wavelength_and_temperature_are_part_of_the_inverse():
    model = plain(path_imbalance_m=2e-5, resistance_growth_per_k=1e-3, names=["a", "b", "c"], max_voltage_v=8.0)
    best = solve_heaters(model, [0.1, 1.0, 2.0], wavelength_m=1545e-9, temperature_k=305.0)
    reached = model.phases(model.power(best.voltage_v, 305.0), 1545e-9, 305.0)
    np.testing.assert_allclose(reached - TWO_PI * best.wraps, [0.1, 1.0, 2.0], atol=1e-12)
    with pytest.raises(
        LimitError, match=r"heater b would need 35\.01 mW at the least .* 6\.482 V; its max_voltage_v = 6 V"
    ):
        solve_heaters(replace(model, path_imbalance_m=0.0, max_voltage_v=6.0), [0.1, 5.5, 2.0])


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([2, 4]), SEEDS)
def test_batches_for_a_twin_agree_with_single_solutions(ports, seed):
    rng, twin = np.random.default_rng(seed), imperfect_twin(ports, seed % 5)
    phases = rng.uniform(-10.0, 10.0, (2, 3, len(twin.offset)))
    power = solve_powers(twin, phases)
    assert power.shape == phases.shape
    model = HeaterModel(twin.efficiency, 1200.0, offset_rad=twin.offset, crosstalk=twin.crosstalk)
    single = [solve_heaters(model, row).total_power_w for row in phases.reshape(6, -1)]
    np.testing.assert_allclose(power.sum(axis=-1).ravel(), single, rtol=2e-9)
    assert solve_powers(twin, phases[:, :0]).shape == (2, 0, len(twin.offset))


def test_batches_keep_limits_that_bounds_do_not_settle():
    """A limit just below what the least wraps need makes a neighbour help with a whole turn more."""
    rng = np.random.default_rng(5)
    twin = TwinParameters.nominal(2, input_amplitude=0.1, lo_amplitude=0.1)
    size = len(twin.offset)
    twin = replace(twin, crosstalk=np.where(np.eye(size), 1.0, 0.1 * rng.uniform(0.0, 1.0, (size, size))))
    phases = rng.uniform(0.0, TWO_PI, size)
    free = solve_powers(twin, phases)
    limit = np.full(size, np.inf)
    limit[free.argmax()] = 0.999 * free.max()
    kept = solve_powers(twin, phases, max_power_w=limit)
    assert (kept <= limit).all()
    assert kept.sum() > free.sum() + 0.02
    np.testing.assert_allclose(np.exp(1j * twin.phases(kept)), np.exp(1j * phases), atol=1e-7)
    everywhere = rf"heater {twin.layout.heaters[free.argmax()]} would need {1e3 * free.max():.2f} mW at the least"
    with pytest.raises(LimitError, match=everywhere):
        solve_powers(twin, phases, max_power_w=0.999 * free.max())


def test_what_is_too_large_to_search_is_answered_at_once_and_called_unproven():
    """181 heaters with crosstalk of both signs: a search of them ran for minutes."""
    sites = ChipLayout(12).heater_sites
    rng = np.random.default_rng(0)
    distance = np.linalg.norm(sites[:, None] - sites[None], axis=-1)
    crosstalk = 0.04 * np.exp(-(distance - 1.0) / 0.6) * rng.choice([-1.0, 1.0], distance.shape)
    np.fill_diagonal(crosstalk, 1.0)
    model = HeaterModel(np.full(len(sites), np.pi / 0.02), np.full(len(sites), 1200.0), crosstalk=crosstalk)
    wanted = rng.uniform(0.0, 2.0 * np.pi, len(sites))
    found = solve_heaters(model, wanted)
    assert not found.proven
    assert found.lower_bound_w <= found.total_power_w
    assert (found.power_w >= 0.0).all()
    np.testing.assert_allclose(np.exp(1j * (model.phases(found.power_w) - wanted)), 1.0, atol=1e-7)
