"""hidden_chip.yaml: what it describes is what the chip is, and mistakes are named with their remedy."""

import re

import numpy as np
import pytest
from hidden_meshes import BARE, POWER_W, WAVELENGTH_M, bare_chip
from hypothesis import given
from hypothesis import strategies as st
from twins import set_heater_powers

from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics import ChipLayout, MeshLayout, TriangularLayout
from simulated_instruments import HiddenChip, HiddenEffects, coupler_mean


@pytest.fixture
def described(tmp_path):
    def load(text, seed=0):
        path = tmp_path / "hidden_chip.yaml"
        path.write_text(text, encoding="utf-8")
        return HiddenChip.from_file(path, seed=seed)

    return load


def lit(chip, port=0):
    chip.set_laser(POWER_W, WAVELENGTH_M)
    chip.set_lit_port(port)
    return chip


def same(one, other):
    return one.parameters.to_lists() == other.parameters.to_lists()


def test_a_preset_is_enough(described):
    chip = described("preset: silicon_6\n", seed=4)
    assert same(chip, HiddenChip.from_preset("silicon_6", 4))
    assert chip.effects == HiddenEffects.preset("silicon_6")
    assert same(described("preset: silicon_6\nseed: 9\n", seed=4), HiddenChip.from_preset("silicon_6", 9))


def test_ports_alone_give_the_chip_of_optinc(described):
    assert same(described("version: 1\nports: 3\nseed: 2\n"), HiddenChip.from_seed(2, 3))


def test_a_chip_that_has_aged_is_the_one_that_drifted(described):
    drift = {"resistance_change": -0.02, "efficiency_change": 0.001, "efficiency_spread": 0.003, "offset_rms_rad": 0.3}
    text = "".join(f", {key}: {value}" for key, value in drift.items())
    aged = described(f"preset: method_a\nports: 3\ndrift: {{seed: 4{text}}}\n", seed=1)
    chip = HiddenChip.from_preset("method_a", 1, 3)
    assert not same(aged, chip)
    chip.drift(**drift, seed=4)
    assert same(aged, chip)


def test_readings_are_those_of_the_seed(described):
    one, other = lit(described("preset: method_a\nports: 3\n", seed=1)), lit(HiddenChip.from_preset("method_a", 1, 3))
    np.testing.assert_array_equal(one.measure(range(3), 0.01), other.measure(range(3), 0.01))


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("preset: silicon_6\nports: 4\nlayout: triangular\n", ChipLayout(4, TriangularLayout(4), **BARE)),
        (
            "ports: 4\ninputs: ports\nreceivers: power\nlayout: custom\nmzis: [[0, 0], [1, 2]]\n",
            ChipLayout(4, MeshLayout(4, ((0, 0), (1, 2))), **BARE),
        ),
        ("ports: 4\nreceivers: power\n", ChipLayout(4, receivers="power")),
        ("preset: silicon_6\ninputs: modulators\n", ChipLayout(6, receivers="power")),
        (
            "ports: 3\nmissing: [[1, 1]]\nstuck_rad: {mzi_0_0_phi: 0.5}\n",
            ChipLayout(3, MeshLayout(3, ((0, 0), (2, 0))), ["mzi_0_0_phi"]),
        ),
    ],
)
def test_layouts(described, text, layout):
    assert described(text).layout == layout


def test_effects(described):
    chip = described("preset: method_a\neffects: {mean_reflectivity: 0.55, coupler_spread_rad: 0, crosstalk_rms: 1e-2}")
    assert chip.effects == HiddenEffects.preset(
        "method_a", coupler_mean_rad=coupler_mean(0.55), coupler_spread_rad=0.0, crosstalk_rms=0.01
    )
    np.testing.assert_allclose(np.sin(chip.parameters.eta_in_rad) ** 2, 0.55)


def test_dead_and_stuck_heaters(described):
    chip = lit(
        described(
            "preset: method_a\nports: 3\n"
            "truth: {dead_heaters: [mzi_0_0_theta], stuck_heaters: {mzi_2_0_theta: 0.3, mzi_1_1_phi: 1.0}}\n"
        )
    )
    index = chip.layout.heater_index
    chip.set_heater_voltages(dict.fromkeys(range(6), 4.0))
    chip.clock.sleep(1.0)
    currents = chip.heater_currents()
    assert currents[index["mzi_0_0_theta"]] == 0.0
    assert chip.voltage_for_current(index["mzi_0_0_theta"], 1e-3) == np.inf
    assert np.count_nonzero(currents) == 5
    before = chip.transfer_matrix()
    chip.set_heater_voltages({index[name]: 6.0 for name in ("mzi_0_0_theta", "mzi_2_0_theta", "mzi_1_1_phi")})
    chip.clock.sleep(1.0)
    np.testing.assert_array_equal(chip.transfer_matrix(), before)
    assert chip.layout.stuck == (), "nobody is told"
    assert chip.heater_current(index["mzi_1_1_phi"]) > currents[index["mzi_1_1_phi"]]


def test_a_phase_is_stuck_where_the_file_says(described):
    ideal = "".join(
        f"  {name}: 0\n"
        for name in ("offset_range_rad", "coupler_mean_rad", "coupler_spread_rad", "mzi_loss_db", "mzi_loss_spread_db",
                     "input_coupling_db", "input_coupling_spread_db", "output_coupling_db", "output_coupling_spread_db",
                     "arm_loss_rms")
    )  # fmt: skip
    chip = lit(
        described(
            f"ports: 2\ninputs: ports\nreceivers: power\neffects:\n{ideal}"
            "truth: {stuck_heaters: {mzi_0_0_theta: 1.2}}\n"
        )
    )
    assert chip.detector_powers()[0] == pytest.approx(POWER_W * np.sin(0.6) ** 2, rel=1e-9)


def test_dead_detectors_and_gains(described):
    chip = lit(
        described(
            "preset: method_a\nports: 3\neffects: {noise_relative: 0, noise_floor_w: 0}\n"
            "truth: {dead_detectors: [rx_1], detector_gain: {rx_0: 2.5}}\n"
        )
    )
    readings, powers = chip.measure(range(3), 0.01), chip.detector_powers()
    assert powers[1] > 0.0
    assert readings[1] == 0.0
    assert readings[0] == pytest.approx(2.5 * powers[0])


def test_losses_and_couplers(described):
    chip = lit(
        described(
            "preset: method_a\nports: 2\ntruth:\n"
            "  couplers_rad: {mzi_0_0: [0.6, 0.9]}\n  mzi_loss_db: {mzi_0_0: 3.0}\n"
            "  input_loss_db: {0: 10.0}\n  output_loss_db: {1: 0.5}\n  offsets_rad: {mzi_0_0_theta: 0.7}\n"
        ),
    )
    amplitude = 10 ** (-13.0 / 20.0)
    through = np.cos(0.9) * np.cos(0.6) * np.exp(0.7j) - np.sin(0.9) * np.sin(0.6)
    assert chip.detector_powers()[0] == pytest.approx(POWER_W * abs(amplitude * through) ** 2, rel=1e-9)
    rest = 10 ** (-1.3) * 10 ** (-0.05) * (1.0 - abs(through) ** 2)
    assert chip.detector_powers()[1] == pytest.approx(POWER_W * rest, rel=1e-9)


def test_electrical_values_of_single_heaters(described):
    chip = described(
        "ports: 2\ntruth: {resistance_ohm: {lo: 500}, resistance_growth_per_w: {lo: 0}, pi_power_w: {out_0: 0.011}}\n"
    )
    index = chip.layout.heater_index
    chip.set_heater_voltages({index["lo"]: 5.0})
    assert chip.heater_current(index["lo"]) == pytest.approx(0.01)
    assert chip.parameters.pi_power_w[index["out_0"]] == 0.011


def test_swapped_wires_swap_everything_that_a_heater_is(described):
    text = "preset: method_a\nports: 3\nseed: 6\neffects: {second_order_crosstalk: 0.02}\n"
    straight = lit(described(text))
    ring = {"mzi_0_0_theta": "mzi_2_0_phi", "mzi_2_0_phi": "mzi_1_1_phi", "mzi_1_1_phi": "mzi_0_0_theta"}
    crossed = lit(described(text + f"truth: {{wires: {ring}}}\n".replace("'", "")))
    index = straight.layout.heater_index
    voltages = np.random.default_rng(0).uniform(1.0, 6.0, 6)
    wires = [index[ring.get(name, name)] for name in straight.layout.heaters]
    crossed.set_heater_voltages(dict(enumerate(voltages.tolist())))
    straight.set_heater_voltages({wires[k]: voltages[k] for k in range(6)})
    for chip in (straight, crossed):
        chip.clock.sleep(1.0)
    np.testing.assert_allclose(crossed.transfer_matrix(), straight.transfer_matrix(), atol=1e-12)
    np.testing.assert_allclose(crossed.heater_currents(), straight.heater_currents()[wires], rtol=1e-12)


@given(st.permutations(range(6)))
def test_any_permutation_of_wires_is_a_chip(order):
    from simulated_instruments._truth import rewire

    chip = bare_chip(3)
    names = chip.layout.heaters
    wires = {names[k]: names[end] for k, end in enumerate(order)}
    parameters = rewire(chip.parameters, chip.layout, wires)
    assert parameters.wiring.tolist() == [float(end) for end in order]
    back = {end: wire for wire, end in wires.items()}
    again = rewire(parameters, chip.layout, back)
    assert again.to_lists() == chip.parameters.to_lists()


def test_a_described_chip_survives_its_json_file(described, tmp_path):
    chip = described("preset: method_a\nports: 3\ntruth: {wires: {mzi_0_0_phi: mzi_1_1_phi, mzi_1_1_phi: mzi_0_0_phi}}")
    chip.to_file(tmp_path / "chip.json")
    again = HiddenChip.from_file(tmp_path / "chip.json")
    assert same(again, chip)
    for each in (chip, again):
        set_heater_powers(lit(each), np.full(6, 0.01))
    np.testing.assert_array_equal(again.transfer_matrix(), chip.transfer_matrix())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("presett: a\n", "presett: unknown key; did you mean 'preset'?"),
        ("preset: silicn_6\n", "no preset 'silicn_6'; presets are"),
        ("seed: 1\n", "ports: this key is missing; add the number of ports, or a preset"),
        ("ports: x\n", "ports: 'x' is not allowed: Input should be a valid integer; give the number of ports"),
        ("ports: 1\n", "ports: 1 is not allowed"),
        ("ports: 3\nversion: 2\n", "version: 2 is not allowed"),
        ("ports: 3\nseed: -1\n", "seed: -1 is not allowed"),
        ("ports: 3\nlayout: custom\n", "layout: custom needs a list"),
        ("ports: 3\nlayout: custom\nmzis: [[0, 5]]\n", "MZI (0, 5) needs modes 5 and 6"),
        ("ports: 3\nmissing: [[1, 0]]\n", "the mesh has no MZI at column 1, upper mode 0"),
        ("ports: 3\nmissing: [[1]]\n", "missing.0: [1] is not allowed"),
        ("ports: 3\nstuck_rad: {lo: 1}\n", "only heaters of the mesh's MZIs can be stuck"),
        ("ports: 3\neffects: {cross_talk_rms: 1}\n", "effects.cross_talk_rms: unknown effect; did you mean 'crosstalk"),
        ("ports: 3\neffects: {pi_power_w: 0}\n", "pi_power_w must be positive"),
        ("ports: 3\neffects: {pi_power_w: .nan}\n", "effects.pi_power_w: nan is not allowed"),
        ("ports: 3\neffects: {mean_reflectivity: 0.5, coupler_mean_rad: 0}\n", "say the same; remove one"),
        ("ports: 3\ntruth: {dead: []}\n", "truth.dead: unknown key; known are dead_heaters, "),
        ("ports: 3\ndrift: {offset_rms: 0.3}\n", "drift.offset_rms: unknown key; did you mean 'offset_rms_rad'?"),
        ("ports: 3\ndrift: {gain_spread: -0.1}\n", "give the rms relative change of detectors' gains"),
        ("ports: 3\ntruth: {dead_heaters: [x]}\n", "truth.dead_heaters: the chip has no 'x'; it has in_0_theta, "),
        ("ports: 3\ntruth: {stuck_heaters: {lo: 1}}\n", "truth.stuck_heaters: the chip has no 'lo'; it has mzi_0_0"),
        ("ports: 3\ntruth: {dead_detectors: [rx_0]}\n", "the chip has no 'rx_0'; it has rx_0_plus"),
        ("ports: 3\ntruth: {input_loss_db: {3: 1}}\n", "the chip has no 3; it has 0, 1, 2"),
        ("ports: 3\ntruth: {mzi_loss_db: {mzi_0_0: -1}}\n", "mzi_0_0: -1.0 is not possible; give 0 or more"),
        ("ports: 3\ntruth: {pi_power_w: {lo: 0}}\n", "lo: 0.0 is not possible; give more than 0"),
        ("ports: 3\ntruth: {couplers_rad: {mzi_0_0: [1]}}\n", "give [in, out] in rad"),
        ("ports: 3\ntruth: {wires: {lo: out_0}}\n", "a swap is {a: b, b: a}"),
        ("- 1\n", "holds no mapping of keys"),
        ("ports: [\n", "not valid YAML"),
        ("!!python/object:os.system {}\n", "not valid YAML"),
    ],
)
def test_mistakes_are_named(described, text, message):
    with pytest.raises(ConfigurationError, match=re.escape(message)) as error:
        described(text)
    assert "hidden_chip.yaml" in str(error.value)


def test_all_mistakes_at_once(described):
    with pytest.raises(ConfigurationError) as error:
        described("presett: a\nports: x\ntruth: {dead: 1}\n")
    assert len(str(error.value).splitlines()) == 3


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.yml: cannot be read .*check the path"):
        HiddenChip.from_file(tmp_path / "none.yml")
