"""Which phase a channel moves: likelihoods of steps, rough twins; readings from a chip of its own, arm by arm."""

from dataclasses import replace

import numpy as np
import pytest
from _discovery_chips import FaultyMesh

from calibration._discovery_heat import effect_over_noise, invisible_phases
from calibration._discovery_steps import Steps, judge_steps, telling_settings
from calibration._discovery_twin import RoughTwin
from calibration._mesh_linear import MeshData
from calibration._twin_fit import NoiseModel

NOISE = NoiseModel(1e-3, 1e-5)


def ideal(ports, seed=0, **flaws):
    """A chip without crosstalk and coupler errors, and the twin that is right for it."""
    chip = FaultyMesh(ports, seed, **{"crosstalk": 0.0, "coupler_spread": 0.0, **flaws})
    layout = chip.layout
    sections = chip._offset.reshape(2 * layout.mesh.depth, ports)
    column, mode = np.array(layout.mesh.mzis).T
    # Arm phases to phases of the upper arm against the lower: what is common to both is not, so push it on.
    common, offset = np.zeros(ports), np.zeros(len(layout.heaters))
    for c in range(layout.mesh.depth):
        here = np.flatnonzero(column == c)
        pairs = [(k, mode[k], mode[k] + 1) for k in here]
        covered = {m for _, a, b in pairs for m in (a, b)}
        for k, a, b in pairs:
            outer = sections[2 * c] + common
            inner = sections[2 * c + 1]
            offset[layout.mesh_phi[k]] = outer[a] - outer[b]
            offset[layout.mesh_theta[k]] = inner[a] - inner[b]
            common[[a, b]] = outer[b] + inner[b]
        for m in set(range(ports)) - covered:
            common[m] += sections[2 * c, m] + sections[2 * c + 1, m]
    channel = np.arange(len(offset))
    twin = RoughTwin(layout, channel, chip.efficiency, offset, np.ones(ports), np.ones(ports))
    return chip, twin


def settings(chip, count, seed=0, off=()):
    rng = np.random.default_rng(seed)
    power = rng.uniform(0.0, 0.04, (count, len(chip.layout.heaters)))
    power[:, list(off)] = 0.0
    lit = np.arange(count) % chip.layout.ports
    return power, lit, MeshData(power, lit, chip.measure("settings", power, lit))


def stepped(chip, channels, count=8, turn=0.25, seed=1, off=()):
    power, lit, _ = settings(chip, count, seed, off)
    power = power * 0.5
    before = chip.measure("before", power, lit)
    rows, size = [], turn * 2.0 * np.pi / chip.efficiency
    for one in channels:
        raised = power.copy()
        raised[:, one] += size[one]
        rows.append(chip.measure("after", raised, lit))
    return Steps(
        power, lit, before, np.tile(np.arange(count), len(channels)), np.repeat(channels, count),
        np.repeat(size[channels], count), np.concatenate(rows),
    )  # fmt: skip


def test_a_twin_with_the_right_phases_predicts_an_arm_by_arm_chip():
    chip, twin = ideal(6)
    _, _, data = settings(chip, 24)
    assert twin.with_scales(data, rounds=6).distance(data) < 0.01  # losses of paths differ a little


def test_descent_finds_phases_that_nothing_was_known_of():
    chip, twin = ideal(4)
    _, _, data = settings(chip, 40)
    wrong = twin.offset.copy()
    wrong[twin.layout.mesh_phi[2:]] = 0.0
    begun = replace(twin, offset=wrong)
    every, nothing = np.ones(len(wrong), dtype=bool), np.full(len(wrong), np.inf)
    assert begun.distance(data) > 0.1
    assert begun.descended(data, every, wrong, nothing, 10).distance(data) < 0.01


def test_the_other_sign_of_a_still_phase_predicts_the_same():
    chip, twin = ideal(6)
    still = twin.layout.mesh_theta[4]
    twin = replace(twin, channel=np.where(np.arange(30) == still, -1, twin.channel))
    power, lit, _ = settings(chip, 12)
    np.testing.assert_allclose(twin.mirrored(4).predict(power, lit), twin.predict(power, lit), atol=1e-12)


@pytest.mark.parametrize("mzi", [0, 4, 6, 9, 12])
def test_the_sign_of_a_still_phase_does_not_matter_when_its_channel_steps(mzi):
    """With the other sign, what is common to both outputs turns the other way too."""
    chip, twin = ideal(6)
    still = twin.layout.mesh_theta[mzi]
    twin = replace(twin, channel=np.where(np.arange(30) == still, -1, twin.channel))
    _, _, data = settings(chip, 24, off=[still])
    twin = twin.with_scales(data)
    steps = stepped(chip, np.array([still]), count=18, off=[still])
    right, other = (judge_steps(one, steps) for one in (twin, twin.mirrored(mzi)))
    assert right.unexplained[still, still] < 0.01
    np.testing.assert_allclose(other.unexplained[still, still], right.unexplained[still, still], rtol=1e-6)
    assert other.best[still] == still
    assert (bool(right.mirrored[still, still]), bool(other.mirrored[still, still])) == (False, True)


def test_steps_show_which_phase_each_channel_moves():
    chip, twin = ideal(6, swapped=4)
    _, _, data = settings(chip, 24)
    steps = stepped(chip, np.arange(30), count=18)
    places = np.empty(30, dtype=int)
    places[chip.acts_on] = np.arange(30)
    verdicts = judge_steps(replace(twin, channel=places).with_scales(data), steps)
    visible = ~np.isin(chip.acts_on, invisible_phases(chip.layout))
    assert verdicts.decided[visible].mean() > 0.9
    assert (verdicts.best == chip.acts_on)[verdicts.decided].all()
    assert not verdicts.decided[~visible].any()


def test_what_does_nothing_is_told_from_what_only_warms():
    chip = FaultyMesh(6, 3)
    chip.acts_on[7] = -1
    unseen = invisible_phases(chip.layout)
    over = effect_over_noise(stepped(chip, np.array([7, *unseen])), NOISE, 30)
    assert over[7] == pytest.approx(1.0, abs=0.3)
    assert over[unseen].min() > 2.5


def test_telling_settings_are_those_in_which_rivals_differ():
    chip, twin = ideal(6)
    power, lit, _ = settings(chip, 60)
    rivals = np.array([twin.layout.mesh_phi[5], twin.layout.mesh_phi[6]])
    chosen = telling_settings(twin, power, lit, [(3, rivals)], 6)
    assert len(set(chosen.tolist())) == 6
    beats = twin.interferences(power, lit)[rivals] * (1j - 1.0)
    apart = ((beats[0] - beats[1]).real ** 2).sum(axis=1)
    assert np.median(apart[chosen]) > np.median(apart)
