"""Benches of bare meshes, simulated: light in one port at a time through the switch, power meters at the outputs."""

import numpy as np
import pytest

from optinc_hw.bench import Bench, check_bench, instrument_names, read_description, write_bench_folder
from optinc_hw.errors import ConfigurationError, LimitError
from simulated_instruments import HiddenChip

PORTS = 4
HEATERS = PORTS * (PORTS - 1)
CHIP = """
preset: silicon_6
seed: 11
ports: 4
"""


def write_mesh(folder, ports=PORTS, **design):
    addresses = {name: f"nowhere:{name}" for name in instrument_names(ports, "mesh")}
    write_bench_folder(folder, ports, addresses, kind="mesh", **design)
    return folder


def rewire(folder, old, new, file):
    path = folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def use_cross_connect(folder):
    """Put a Polatis cross-connect in place of the 1xN switch: laser on its input 0, port i of the chip on output i."""
    rewire(folder, "drivers.DiConMemsSwitch", "drivers.PolatisOXC", "station.yaml")
    rewire(folder, f"channels: {PORTS}", f"ports: {PORTS}", "station.yaml")
    for port in range(PORTS):
        rewire(folder, f"input: {port}, output: 0", f"input: 0, output: {port}", "chip.yaml")
    return folder


def seen(folder):
    """Powers (port, detector) with each port lit, then with none, at one setting."""
    with Bench.open(folder, simulate=True, seed=5) as bench:
        voltages = np.linspace(1.0, 5.0, HEATERS)
        bench.light(True)
        lit = [bench.measure(voltages, port=port) for port in range(PORTS)]
        bench.light_port(None)
        dark = bench.read_detectors()
        assert all(reading.valid.all() for reading in (*lit, dark))
        return np.array([reading.power_w for reading in (*lit, dark)])


def test_the_bench_sees_the_hidden_chip_port_by_port(tmp_path):
    powers = seen(write_mesh(tmp_path / "bench"))
    chip = HiddenChip.from_seed(5, PORTS, inputs="ports", receivers="power")
    chip.set_laser(0.01, 1550e-9)
    chip.set_heater_voltages(dict(enumerate(np.linspace(1.0, 5.0, HEATERS).tolist())))
    for port in range(PORTS):
        chip.set_lit_port(port)
        chip.clock.sleep(0.01)
        # detector gains scatter by 5 %
        np.testing.assert_allclose(powers[port], chip.detector_powers(), rtol=0.25, atol=1e-6)
    assert np.abs(powers[PORTS]).max() < 1e-6


def test_both_kinds_of_switches_light_the_same(tmp_path):
    one_by_n = seen(write_mesh(tmp_path / "dicon"))
    cross = seen(use_cross_connect(write_mesh(tmp_path / "polatis")))
    np.testing.assert_allclose(cross, one_by_n, rtol=0.02, atol=1e-7)


def test_leaving_a_bare_mesh_leaves_heaters_cold_and_the_laser_dark(tmp_path):
    with Bench.open(write_mesh(tmp_path / "bench"), simulate=True) as bench:
        bench.light(True)
        bench.measure(np.full(HEATERS, 2.0), port=0)
        bench.make_safe()
        assert np.abs(bench.read_heaters().voltage_v).max() < 2e-3
        assert np.abs(bench.read_detectors().power_w).max() < 1e-6


def test_a_heater_is_tried_at_a_low_voltage_before_it_gets_the_whole_step(tmp_path, monkeypatch):
    steps = []
    original = HiddenChip.set_heater_voltages

    def noted(self, values):
        steps.append(dict(values))
        return original(self, values)

    monkeypatch.setattr(HiddenChip, "set_heater_voltages", noted)
    with Bench.open(write_mesh(tmp_path / "bench"), simulate=True) as bench:
        assert bench.description.chip.ramp.step_v >= 8.0
        bench.set_voltages(np.array([6.0] + [0.0] * (HEATERS - 1)))
        first = [step[0] for step in steps if 0 in step]
        bench.set_voltages(np.array([3.0] + [6.0] * (HEATERS - 1)))
        bench.set_voltages(np.full(HEATERS, 6.0))
        again = [step[0] for step in steps if 0 in step]
        others = [step[5] for step in steps if step.get(5, 0.0) > 0.0]
    assert first == pytest.approx([0.5, 6.0], abs=1e-3)
    assert again[:4] == pytest.approx([0.5, 6.0, 3.0, 6.0], abs=1e-3)
    assert others[:2] == pytest.approx([0.5, 6.0], abs=1e-3)


def test_a_short_is_found_at_the_low_voltage(tmp_path):
    folder = write_mesh(tmp_path / "bench")
    (folder / "hidden_chip.yaml").write_text("ports: 4\ninputs: ports\nreceivers: power\n"
                                             "effects: {heater_resistance_ohm: 40.0}\n")  # fmt: skip
    with Bench.open(folder, simulate=True) as bench, pytest.raises(LimitError, match="above the limit"):
        bench.set_voltages(np.full(HEATERS, 6.0))


def test_design_values_make_limits_that_reach_three_half_turns(tmp_path):
    folder = write_mesh(tmp_path / "bench", 12, resistance_ohm=1540.0, p_pi_w=0.00123, settle_s=0.0014)
    interlock = read_description(folder).interlock
    powers = np.full(132, 2.3 * 0.00123)
    assert interlock.max_power == pytest.approx(3.0 * 0.00123)
    with pytest.raises(LimitError, match="total_power_w"):
        interlock.check(interlock.voltage(powers))
    interlock.check(interlock.voltage(0.9 * powers))
    assert read_description(folder).chip.settling.settle_s == 0.0014


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p_pi_w": 0.0}, "p_pi_w = 0.0: a design value is more than 0"),
        ({"settle_s": float("inf")}, "settle_s = inf"),
        ({"kind": "bar"}, "kind = 'bar': a bench is one of homodyne, mesh"),
    ],
)
def test_impossible_designs_are_refused(tmp_path, change, message):
    addresses = {name: f"nowhere:{name}" for name in instrument_names(2, "mesh")}
    with pytest.raises(ConfigurationError, match=message):
        write_bench_folder(tmp_path / "bench", 2, addresses, **({"kind": "mesh"} | change))
    assert not (tmp_path / "bench").exists()


def reading_of(**arguments):
    with Bench.simulated(PORTS, kind="mesh", **arguments) as bench:
        bench.light(True)
        return bench.measure(np.full(HEATERS, 3.0), port=1).power_w


def test_a_preset_makes_another_chip_and_its_seed_is_that_of_the_session():
    plain, other = reading_of(seed=3), reading_of(seed=3, chip="silicon_6")
    assert not np.allclose(plain, other, rtol=0.1)
    np.testing.assert_array_equal(reading_of(seed=3, chip={"preset": "silicon_6"}), other)
    assert not np.allclose(reading_of(seed=4, chip="silicon_6"), other, rtol=0.1)
    fixed = {"preset": "silicon_6", "seed": 3}
    np.testing.assert_array_equal(reading_of(seed=4, chip=fixed), other)


def test_a_hidden_chip_in_the_folder_is_the_chip_of_simulated_sessions(tmp_path):
    folder = write_mesh(tmp_path / "bench")
    (folder / "hidden_chip.yaml").write_text(CHIP)
    assert check_bench(folder).ports == PORTS  # no business of real sessions
    np.testing.assert_array_equal(seen(folder), seen(folder))
    (folder / "hidden_chip.yaml").write_text(CHIP.replace("ports: 4", "ports: 5"))
    with pytest.raises(ConfigurationError, match=r"hidden_chip\.yaml: describes a chip of 5 ports with 20 heaters"):
        Bench.open(folder, simulate=True)
    (folder / "hidden_chip.yaml").write_text(CHIP + "colour: blue\n")
    with pytest.raises(ConfigurationError, match=r"hidden_chip\.yaml: colour: unknown key"):
        Bench.open(folder, simulate=True)


def test_readings_are_the_same_with_and_without_sockets(tmp_path, monkeypatch):
    from optinc_hw.bench import _opening

    folder = write_mesh(tmp_path / "bench")
    within = seen(folder)
    start = _opening.start_simulation
    monkeypatch.setattr(_opening, "start_simulation", lambda *args, in_process: start(*args, in_process=False))
    np.testing.assert_array_equal(seen(folder), within)
