"""Which heater is which phase: found on meshes with swapped, dead and shuffled channels; truth only judges."""

from dataclasses import replace

import numpy as np
import pytest
from _discovery_chips import NO_PHASE, FaultyMesh, truth
from scipy.optimize import minimize

from calibration import _discovery_map
from calibration._abilities import intact_block
from calibration._discovery import judge
from calibration._discovery_analysis import agreeing, dead_outputs, effect, find_darkest, find_gate
from calibration._discovery_electrical import fit_settling, judge_resistances
from calibration._discovery_map import ChannelMap, find_channels
from calibration._discovery_routes import RouteMap
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout, MeshPhases, RectangularLayout, fidelity, haar_unitary, mesh_matrix

NOISE = NoiseModel(1e-3, 1e-5)


def discovered(chip: FaultyMesh, seed: int = 0):
    return judge(chip.layout, find_channels(chip, NOISE, np.random.default_rng(seed)))


@pytest.mark.parametrize("ports", [4, 6])
def test_nothing_is_accused_on_a_chip_that_is_wired_as_described(ports):
    found = discovered(FaultyMesh(ports, 1))
    assert {verdict.state for verdict in found.heaters} == {"ok"}
    assert {verdict.state for verdict in found.detectors} == {"ok"}
    assert found.summary.startswith("everything is as chip.yaml says")


def test_swapped_and_dead_heaters_and_a_dead_detector_are_found():
    chip = FaultyMesh(8, 103, swapped=3, dead=3, dead_detectors=1)
    found, true = discovered(chip, 103), truth(chip)
    states = {verdict.name: verdict.state for verdict in found.heaters}
    decided = {verdict.name: verdict.driven_by for verdict in found.heaters if verdict.state != "undecided"}
    assert decided == {name: true[name] for name in decided}
    assert list(states.values()).count("undecided") <= 2
    names = chip.layout.heaters
    silent = {names[channel] for channel in np.flatnonzero(chip.acts_on == NO_PHASE)}
    assert {names[k] for k in np.flatnonzero(~found.map.acts)} == silent
    assert [v.state for v in found.detectors] == ["dead" if d == NO_PHASE else "ok" for d in chip.sees]


def test_nobody_is_accused_where_no_twin_explains_the_readings(monkeypatch):
    monkeypatch.setattr(_discovery_map, "SEARCHES", 1)

    class Scrambled(FaultyMesh):
        """Readings after the gates' that belong to other settings."""

        def measure(self, stage, power_w, lit):
            turned = power_w[::-1] if "twin" in stage or "steps" in stage else power_w
            return super().measure(stage, np.ascontiguousarray(turned), lit)

    chip = Scrambled(4, 1)
    found = discovered(chip)
    assert {verdict.state for verdict in found.heaters} == {"undecided"}
    assert all(verdict.driven_by == verdict.name for verdict in found.heaters)
    assert "undecided" in found.summary


def test_permuted_detectors_are_found():
    chip = FaultyMesh(6, 2)
    chip.sees = np.array([5, 1, 2, 3, 4, 0])  # outputs 0 and 5 pass no MZI of the last column
    found = discovered(chip)
    assert [v.seen_by for v in found.detectors] == ["rx_5", "rx_1", "rx_2", "rx_3", "rx_4", "rx_0"]
    assert {v.state for v in found.heaters} == {"ok"}


@pytest.mark.parametrize("seed", [2, 5, 9])
def test_permuted_detectors_are_found_where_no_light_can_be_led_to_them(seed):
    """A swapped or dead heater stops the way to an output; which detector sees it, the twin tells."""
    chip = FaultyMesh(6, seed, swapped=2, dead=1, permuted_detectors=2)
    found = discovered(chip, seed)
    names = chip.layout.detectors
    assert [v.seen_by for v in found.detectors] == [names[k] for k in np.argsort(chip.sees)]
    assert {verdict.name: verdict.driven_by for verdict in found.heaters} == truth(chip)


@pytest.mark.parametrize("alive", [False, True])
def test_an_output_whose_detector_sees_another_is_dark_only_if_no_other_detector_may_see_it(alive):
    layout = ChipLayout(4, inputs="ports", receivers="power")
    heaters = np.arange(len(layout.heaters))
    found = ChannelMap(
        heaters, heaters < 0, heaters >= 0, np.array([0, 1, -1, 2]), np.array([False, False, not alive, False]),
        np.zeros(6), np.ones(len(heaters)), np.zeros(len(heaters)), np.ones(len(heaters)), 0.0, 1,
    )  # fmt: skip
    state = "untested" if alive else "dead"
    assert [(v.state, v.seen_by) for v in judge(layout, found).detectors] == [
        ("ok", "rx_0"), ("ok", "rx_1"), ("permuted", "rx_3"), (state, None)
    ]  # fmt: skip


def test_the_same_seed_asks_the_same_questions():
    one, other = (find_channels(FaultyMesh(4, 5, swapped=2), NOISE, np.random.default_rng(3)) for _ in range(2))
    assert one.readings == other.readings
    np.testing.assert_array_equal(one.bar_w, other.bar_w)


def test_bar_states_are_those_of_the_chip():
    chip = FaultyMesh(6, 4, crosstalk=0.0, coupler_spread=0.0)
    found = find_channels(chip, NOISE, np.random.default_rng(0))
    power = np.zeros((1, len(chip.layout.heaters)))
    power[0, chip.layout.mesh_theta] = found.bar_w
    # In bar everywhere, light stays on its mode.
    for port in range(6):
        outputs = chip.outputs(power, np.array([port]))[0]
        assert outputs.argmax() == port
        assert outputs[port] > 0.9 * outputs.sum()


def test_channels_that_must_not_be_driven_stay_at_zero():
    class Watched(FaultyMesh):
        def measure(self, stage, power_w, lit):
            assert power_w[:, 7].max() == 0.0
            return super().measure(stage, power_w, lit)

    chip = Watched(4, 1)
    chip.acts_on[7] = NO_PHASE
    unusable = np.arange(len(chip.layout.heaters)) == 7
    found = judge(chip.layout, find_channels(chip, NOISE, np.random.default_rng(0), unusable))
    assert found.lost == (chip.layout.heaters[7],)


@pytest.mark.parametrize("seed", range(4))
def test_a_dead_heater_near_bar_hides_no_other(seed):
    """Its MZI hardly couples its arms, so that the fit has a long way: where it ended early, wires were misjudged."""
    chip = FaultyMesh(6, 1)
    dead = chip.layout.heater_index["mzi_3_3_theta"]
    chip.acts_on[dead] = NO_PHASE
    found = discovered(chip, seed)
    assert {verdict.state for k, verdict in enumerate(found.heaters) if k != dead} == {"ok"}
    assert found.heaters[dead].state == "no effect"


def test_what_the_chip_can_still_do_is_said():
    chip = FaultyMesh(6, 1)
    chip.acts_on[chip.layout.heater_index["mzi_3_3_theta"]] = NO_PHASE
    found = discovered(chip, 2)
    assert "mzi_3_3_theta: no effect" in found.summary
    assert "29 of 30 phases can be moved" in found.summary
    assert "mzi_3_3 has a fixed split between modes 3 and 4" in found.summary
    assert "every unitary on ports 0 to 2 can be programmed" in found.summary


@pytest.mark.parametrize(
    ("lost", "block"),
    [
        ([], (0, 5)),
        (["mzi_0_2_phi"], (0, 5)),  # a phase of the input
        (["mzi_3_3_theta"], (0, 2)),  # any four neighbouring columns hold it
        (["mzi_3_3_theta", "mzi_3_1_theta", "mzi_2_2_phi"], (0, 2)),
        ([f"mzi_{c}_{m}_theta" for c in range(6) for m in range(c % 2, 5, 2)], None),
    ],
)
def test_the_largest_whole_part_of_a_mesh(lost, block):
    layout = FaultyMesh(6, 1).layout
    assert intact_block(layout, np.array([name in lost for name in layout.heaters])) == block


@pytest.mark.parametrize("ports", [5, 6])
def test_unitaries_of_the_whole_part_come_out_although_all_else_inside_stands_still(ports):
    layout, rng = FaultyMesh(ports, 1).layout, np.random.default_rng(ports)
    inside = [(c, m) for c, m in layout.mesh.mzis if c >= 3 and m < 2]
    lost = {f"mzi_{c}_{m}_{kind}" for c, m in inside for kind in ("theta", "phi")} | {
        f"mzi_{ports % 2 + 2}_{ports - 2}_theta"
    }
    fixed = np.array([name in lost for name in layout.heaters])
    assert intact_block(layout, fixed) == (0, 2)
    phases = rng.uniform(0.5, 2.5, len(fixed))
    target = haar_unitary(3, rng)

    def lost_fidelity(moving):
        values = phases.copy()
        values[~fixed] = moving
        setting = MeshPhases(layout.mesh, values[layout.mesh_theta], values[layout.mesh_phi], np.zeros(ports))
        return 1.0 - fidelity(target, mesh_matrix(setting)[:3, :3], gauge="ports")

    def enough(intermediate_result):
        if intermediate_result.fun < 1e-4:
            raise StopIteration

    starts = rng.uniform(0.0, 2.0 * np.pi, (6, int(np.sum(~fixed))))
    ways = {"method": "L-BFGS-B", "callback": enough, "options": {"maxiter": 60}}
    assert any(minimize(lost_fidelity, start, **ways).fun < 1e-4 for start in starts)


def test_other_kinds_of_chip_are_refused():
    from optinc_hw.photonics import ChipLayout

    chip = FaultyMesh(4, 0)
    chip.layout = ChipLayout(4)
    with pytest.raises(CalibrationError, match="bare meshes only"):
        find_channels(chip, NOISE, np.random.default_rng(0))


POWER = np.arange(6) / 6 * 0.04
EFFICIENCY = np.pi / 0.02


def gated(closed_at: float, leak: float = 0.0):
    """Readings of four outputs before and after a change that a phase ``closed_at`` W from bar lets through."""
    angle = EFFICIENCY * (POWER - closed_at)
    passing = (1.0 - np.cos(angle)) / 2 + leak
    change = np.array([0.3, -0.2, -0.15, 0.05])
    before = 0.5 + 0.2 * np.outer(np.cos(angle), [1.0, -1.0, 0.5, -0.5])
    return before, before + passing[:, None] * change


@pytest.mark.parametrize("closed_at", [0.0, 0.0123, 0.039])
def test_a_gate_closes_where_a_change_has_no_effect(closed_at):
    gate = find_gate(POWER, *gated(closed_at), EFFICIENCY)
    assert gate.good
    distance = (gate.bar_w - closed_at + 0.02) % 0.04 - 0.02
    assert abs(distance) * EFFICIENCY < 0.03


def test_a_leaking_gate_is_none():
    gate = find_gate(POWER, *gated(0.01, leak=0.5), EFFICIENCY)
    assert gate.informative
    assert not gate.good


def test_a_gate_is_closed_where_its_output_is_dark():
    angle = EFFICIENCY * (POWER - 0.011)
    readings = np.stack([1 + np.cos(angle), 1 - np.cos(angle), np.full(6, np.nan)], axis=1) / 2
    assert find_darkest(POWER, readings, 1, EFFICIENCY).bar_w == pytest.approx(0.011, abs=2e-4)
    assert find_darkest(POWER, readings, 1, EFFICIENCY).shifted().bar_w == pytest.approx(0.031, abs=2e-4)


def test_gates_must_agree():
    gate = find_gate(POWER, *gated(0.01), EFFICIENCY)
    elsewhere = replace(gate, bar_w=gate.bar_w + 0.01)
    assert agreeing([gate, elsewhere], 2) is None
    assert agreeing([gate, elsewhere, gate], 2).bar_w == pytest.approx(gate.bar_w)
    assert agreeing([gate, gate], 3) is None


def test_effect_is_the_share_of_light_that_moves():
    assert effect(np.array([[3.0, 1.0, np.nan], [1.0, 3.0, 5.0]])) == pytest.approx(0.5)


def test_dead_detectors_never_see_light():
    readings = np.array([[1.0, 1e-4, np.nan, 0.1], [0.2, 2e-4, np.nan, 2.0]])
    assert dead_outputs(readings).tolist() == [False, True, True, False]


def test_routes_go_around_what_cannot_be_steered():
    mesh = RectangularLayout(6)
    steerable = np.ones(15, dtype=bool)
    routes = RouteMap(mesh)
    assert routes.to_arm(4, 3, steerable).lit == 3
    assert not routes.to_arm(4, 3, steerable).crossed
    steerable[mesh.index(2, 2)] = False
    around = routes.to_arm(4, 3, steerable)
    assert mesh.index(2, 2) not in around.passed


def test_resistances_tell_breaks_and_shorts():
    voltage = np.full(5, 3.0)
    current = np.array([2.5e-3, 2.4e-3, 0.0, 0.3, 2.6e-3])
    ohm, state = judge_resistances(voltage, current)
    assert state == ("ok", "ok", "open", "short", "ok")
    assert ohm[0] == pytest.approx(1200.0)
    with pytest.raises(CalibrationError, match="no heater takes current"):
        judge_resistances(voltage, np.zeros(5))


@pytest.mark.parametrize("constant", [0.7, 1.2])
def test_settling_of_a_package_is_seen(constant):
    time = np.arange(1, 81) * 0.1
    rng = np.random.default_rng(0)
    readings = np.stack([1 + 0.2 * np.exp(-time / constant), np.full(80, 0.5)], axis=1)
    readings *= 1 + 1e-3 * rng.standard_normal(readings.shape)
    found = fit_settling(time, readings, np.array([1e-3, 5e-4]), 0.5)
    assert found.time_constant_s == pytest.approx([constant, 0.0], rel=0.1)
    assert found.left_over == pytest.approx([np.exp(-0.5 / constant), 0.0], abs=0.05)
