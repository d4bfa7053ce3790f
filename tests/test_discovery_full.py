"""The full model that judges a believed wiring, and heaters whose phases no power shows: where their heat puts them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from _discovery_chips import NO_PHASE, FaultyMesh, truth
from test_discovery_steps import ideal, settings, stepped

from calibration import _discovery_channels
from calibration._discovery import judge
from calibration._discovery_channels import UNSHARP
from calibration._discovery_full import fit_full, relabelled
from calibration._discovery_heat import HeatModel, invisible_phases
from calibration._discovery_map import find_channels
from calibration._discovery_placing import HEAT_LIKELIHOOD, half_told, place_unseen
from calibration._discovery_steps import LOG_LIKELIHOOD, Verdicts, judge_steps
from calibration._discovery_tests import PhaseTests
from calibration._twin_fit import NoiseModel
from optinc_hw.photonics import ChipLayout

NOISE = NoiseModel(1e-3, 1e-5)
PLACES = np.array([1, 3, 5])


def flawed(ports, seed=0, **flaws):
    """A chip with crosstalk and uneven couplers, and a rough twin that knows its wiring and offsets."""
    chip, twin = ideal(ports, seed, crosstalk=0.015, coupler_spread=0.02, **flaws)
    places = np.full(len(twin.channel), -1)
    moving = np.flatnonzero(chip.acts_on != NO_PHASE)
    places[chip.acts_on[moving]] = moving
    return chip, replace(twin, channel=places)


def rough_and_full(chip, twin):
    still = np.setdiff1d(np.arange(30), twin.channel)
    _, _, data = settings(chip, 120, off=still)
    _, _, unseen = settings(chip, 20, seed=9, off=still)
    rough = twin.with_scales(data).descended(data, np.ones(30, dtype=bool), twin.offset, np.full(30, np.inf), 5)
    return rough, fit_full(rough, data, NOISE, np.random.default_rng(0)), unseen


@pytest.fixture(scope="module")
def sharp():
    """A chip of which four heaters are swapped, rough and full twin, and settings that they have not seen."""
    chip, twin = flawed(6, swapped=4)
    return (chip, *rough_and_full(chip, twin))


def test_the_full_model_predicts_what_a_rough_twin_does_not(sharp):
    chip, rough, full, unseen = sharp
    assert rough.distance(unseen) > UNSHARP
    assert full.distance(unseen) < 0.5 * UNSHARP
    verdicts = judge_steps(full, stepped(chip, np.arange(30), count=12))
    visible = ~np.isin(chip.acts_on, invisible_phases(chip.layout))
    assert verdicts.decided[visible].all()
    assert (verdicts.best == chip.acts_on)[visible].all()


def test_the_full_model_judges_a_still_phase_by_both_signs():
    chip, twin = flawed(6)
    mzi = 6
    still = twin.layout.mesh_theta[mzi]
    _, full, unseen = rough_and_full(chip, replace(twin, channel=np.where(np.arange(30) == still, -1, twin.channel)))
    other = full.mirrored(mzi)
    assert other.distance(unseen) < 0.5 * UNSHARP
    steps = stepped(chip, np.array([still]), count=18, off=[still])
    for one in (full, other):
        verdicts = judge_steps(one, steps)
        assert verdicts.best[still] == still
        assert verdicts.least[still] < 0.05


def test_a_wrong_wiring_is_no_sharp_model():
    chip, twin = flawed(6)
    one, other = twin.layout.heater_index["mzi_1_1_theta"], twin.layout.heater_index["mzi_3_3_theta"]
    wrong = twin.channel.copy()
    wrong[[one, other]] = wrong[[other, one]]
    _, full, unseen = rough_and_full(chip, replace(twin, channel=wrong))
    assert full.distance(unseen) > UNSHARP


def test_powers_go_to_the_phases_that_channels_move():
    power = np.array([[1.0, 2.0, 3.0]])
    assert relabelled(power, np.array([2, -1, 0])).tolist() == [[3.0, 0.0, 1.0]]


@pytest.mark.parametrize("mean", [-0.05, 0.07])
def test_the_mean_of_the_couplers_is_found(mean):
    chip, twin = ideal(6, coupler_mean=mean)
    _, _, data = settings(chip, 60)
    assert abs(twin.with_couplers(data).eta - np.pi / 4) == pytest.approx(abs(mean), abs=0.02)


@pytest.mark.parametrize("place", invisible_phases(ChipLayout(6, inputs="ports", receivers="power")))
def test_heat_as_that_of_other_heaters_tells_where_one_is(sharp, place):
    chip, _, full, _ = sharp
    channel = np.flatnonzero(chip.acts_on == place)
    unseen = invisible_phases(chip.layout)
    likely = HeatModel(full, full.heat).log_likelihoods(stepped(chip, channel, count=22, turn=0.75), NOISE, unseen)
    away = np.abs(np.arange(3) - np.flatnonzero(unseen == place))
    assert likely[away == 0] > likely.max() - LOG_LIKELIHOOD
    assert (likely[away == 2] < likely[away == 0]).all()


def test_a_twin_that_is_wrong_tells_no_place(sharp):
    """As a full model that ended in a poor minimum: 2 of 56 heaters were accused by one."""
    chip, _, full, _ = sharp
    place = invisible_phases(chip.layout)[1]
    known = full.fit.parameters
    off = replace(known, offset=known.offset + 0.5 * np.random.default_rng(0).standard_normal(len(known.offset)))
    wrong = replace(full, fit=replace(full.fit, parameters=off))
    steps = stepped(chip, np.flatnonzero(chip.acts_on == place), count=22, turn=0.75)
    places = invisible_phases(chip.layout)
    assert np.isneginf(HeatModel(wrong, wrong.heat).log_likelihoods(steps, NOISE, places)).all()
    assert np.isfinite(HeatModel(full, full.heat).log_likelihoods(steps, NOISE, places)).all()


@pytest.mark.parametrize(
    ("preset", "ports", "chip", "seed"),
    [
        pytest.param("method_a", 8, 201, 201, id="a full model that ends in a poor minimum"),
        pytest.param("method_a", 8, 212, 212, id="swapped thetas around a dead one: no gate tells of the MZIs behind"),
        pytest.param("method_a", 8, 212, 1, id="the same, from other settings"),
        pytest.param("method_a", 8, 110, 110, id="one of those that no gate told of hangs elsewhere"),
        pytest.param("method_a", 6, 301, 301, id="heat so strong that it bends, next to a dead heater of its kind"),
        pytest.param("method_a", 6, 312, 312, id="heat so strong that it bends, next to a swapped heater of its kind"),
        pytest.param(
            "method_a", 6, 433, 433, id="two heaters of that kind exchanged, hardly likelier each, but both together"
        ),
        pytest.param("method_b", 6, 206, 206, id="couplers of 0.567 and arm losses that the model lacks"),
        pytest.param("method_a", 8, 308, 308, id="heat that the full model explains only with more readings"),
    ],
)
def test_all_is_found_on_chips_that_once_were_misjudged(monkeypatch, preset, ports, chip, seed):
    assert_all_found(monkeypatch, preset, ports, chip, seed, opens=0)


def test_of_two_places_that_explain_a_channel_alike_that_of_chip_yaml_is_believed(monkeypatch):
    """Two of three exchanged thetas meet at (2, 6), behind a dead one, and one of the dead heaters is open."""
    assert_all_found(monkeypatch, "method_a", 8, 301, 0, opens=1)


def assert_all_found(monkeypatch, preset, ports, chip, seed, opens):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    from _damaged import DamagedProbe

    probe = DamagedProbe(preset, ports, chip)
    noise = NoiseModel(probe.effects.noise_relative, probe.effects.noise_floor_w)
    unusable = np.isin(probe.layout.heaters, probe.damage.dead[:opens])
    found = judge(probe.layout, find_channels(probe, noise, np.random.default_rng(seed), unusable))
    assert {verdict.name: verdict.driven_by for verdict in found.heaters} == probe.damage.driven_by
    assert not [verdict.name for verdict in found.heaters if verdict.state == "undecided"]


def placed(likely):
    channel = np.full(8, -1)
    place_unseen(channel, PLACES, {one: np.array(values) for one, values in likely.items()})
    return channel[PLACES].tolist()


def test_a_heater_stays_where_chip_yaml_has_it_unless_its_heat_is_elsewhere_beyond_doubt():
    assert placed({1: [-0.9 * LOG_LIKELIHOOD, 0.0, -50.0]}) == [1, -1, -1]
    assert placed({1: [-3.0 * LOG_LIKELIHOOD, 0.0, -50.0]}) == [-1, 1, -1]


def test_a_channel_from_elsewhere_gets_the_likeliest_place_that_is_left_or_none():
    own = {3: [-20.0, 0.0, -20.0]}
    assert placed({**own, 7: [-1.5 * HEAT_LIKELIHOOD, 0.0, 0.0]}) == [-1, 3, 7]
    assert placed({**own, 7: [-0.5 * HEAT_LIKELIHOOD, 0.0, 0.0]}) == [-1, 3, -1]


@pytest.mark.parametrize(
    ("likely", "found"),
    [
        pytest.param({1: [-9.0, 0.0, -50.0], 3: [0.0, -9.0, -50.0]}, [3, 1, -1], id="two of them exchanged"),
        pytest.param({1: [-4.0, 0.0, -50.0], 3: [0.0, -4.0, -50.0]}, [1, 3, -1], id="too little to accuse two"),
        pytest.param({1: [-11.0, 0.0, -50.0], 3: [-40.0, 0.0, -30.0]}, [1, 3, -1], id="likelier where another is"),
        pytest.param({1: [-21.0, 0.0, -50.0], 3: [-40.0, 0.0, -30.0]}, [-1, 3, -1], id="much likelier there"),
        pytest.param({1: [-30.0, -30.0, 0.0], 5: [0.0, -30.0, -30.0], 3: [-20.0, 0.0, -20.0]}, [5, 3, 1], id="far"),
        pytest.param({7: [0.0, -9.0, -9.0], 8: [0.0, -9.0, -9.0]}, [-1, -1, -1], id="two that are alike"),
    ],
)
def test_heaters_that_only_warm_are_placed_together(likely, found):
    assert placed(likely) == found


def judged(places, undecided=()):
    """Verdicts on 6 channels: those of ``places`` move these phases beyond doubt, others their own; some are open."""
    every, best = np.arange(6), np.arange(6)
    best[list(places)] = list(places.values())
    unexplained = np.ones((6, 6))
    unexplained[every, best] = 0.01
    numbers = np.where(np.isin(every, list(undecided)), 0.0, 100.0)
    return Verdicts(np.full(6, 0.5), unexplained, np.zeros((6, 6), dtype=bool), numbers)


@pytest.mark.parametrize(
    ("places", "undecided", "silent", "warm", "half"),
    [
        pytest.param({1: 2, 2: 1}, [], [], [], [], id="an exchange"),
        pytest.param({1: 2}, [2], [], [], [1], id="half of one"),
        pytest.param({1: 2, 2: 3}, [3], [], [], [1, 2], id="a ring that breaks off"),
        pytest.param({1: 2}, [2], [2], [], [], id="in place of a dead one"),
        pytest.param({1: 2}, [2], [], [2], [], id="in place of one that only warms"),
    ],
)
def test_half_an_exchange_of_wires_is_no_accusation(places, undecided, silent, warm, half):
    dead = np.isin(np.arange(6), silent)
    found = half_told(judged(places, undecided), dead, dict.fromkeys(warm, np.zeros(3)))
    assert np.flatnonzero(found).tolist() == half


def test_a_full_model_that_does_not_explain_its_readings_places_no_heater(monkeypatch):
    monkeypatch.setattr(_discovery_channels, "TELLING_CHI", 0.0)
    chip = FaultyMesh(6, 2)
    found = judge(chip.layout, find_channels(chip, NOISE, np.random.default_rng(0)))
    unseen = set(invisible_phases(chip.layout).tolist())
    assert {k for k, verdict in enumerate(found.heaters) if verdict.state == "undecided"} == unseen
    assert {verdict.state for k, verdict in enumerate(found.heaters) if k not in unseen} == {"ok"}


def test_channels_that_move_no_light_are_told_from_those_that_do():
    chip = FaultyMesh(6, 3)
    dead, inner = chip.layout.mesh_theta[[4, 7]]
    chip.acts_on[dead] = NO_PHASE
    tests = PhaseTests(chip, NOISE, np.random.default_rng(0))
    assert (tests.acts(int(dead)), tests.acts(int(inner))) == (False, True)


def test_stray_light_makes_no_detector_that_of_a_dead_ones_output():
    chip = FaultyMesh(4, 1)
    tests = PhaseTests(chip, NOISE, np.random.default_rng(0))
    tests.dead_detectors[3], tests.light_w[0] = True, 1.0
    tests._assign(np.array([0.001, 0.002, 0.1, np.nan]), 0, (3,))
    assert (tests.sees == -1).all()
    tests._assign(np.array([0.01, 0.9, 0.02, np.nan]), 0, (1,))
    assert tests.sees.tolist() == [-1, 1, -1, -1]


def test_two_swapped_and_three_dead_heaters_and_a_dead_detector_are_all_found():
    chip = FaultyMesh(6, 107, swapped=2, dead=3, dead_detectors=1)
    found, true = judge(chip.layout, find_channels(chip, NOISE, np.random.default_rng(1))), truth(chip)
    assert {verdict.name: verdict.driven_by for verdict in found.heaters} == true
    assert [v.state for v in found.detectors] == ["dead" if d == NO_PHASE else "ok" for d in chip.sees]
