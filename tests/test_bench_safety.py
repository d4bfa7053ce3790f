"""What protects the chip, on simulated benches with every family of heater sources: ramps, limits, what is believed."""

import threading

import numpy as np
import pytest
from safety_benches import FAMILIES, HEATERS, bank_names, rig_of, write_folder

from optinc_hw.errors import InstrumentError, LimitError
from simulated_instruments.faults import DriftingHeater, OpenHeater, ShortedHeater

UP, DOWN = np.linspace(1.0, 4.0, HEATERS), np.linspace(3.5, 0.0, HEATERS)
HOT_V = 6.0
TOTAL_W = 0.12


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def rig(family, tmp_path, monkeypatch):
    with rig_of(write_folder(tmp_path / "bench", family), monkeypatch) as opened:
        opened.family = family
        yield opened


@pytest.fixture
def small_rig(tmp_path, monkeypatch):
    """A bench of Qontrol modules whose chip must not take more than `TOTAL_W`."""
    folder = write_folder(tmp_path / "bench", "qontrol")
    chip = folder / "chip.yaml"
    head, _, tail = chip.read_text().partition("total_power_w: ")
    chip.write_text(f"{head}total_power_w: {TOTAL_W}  #{tail}")
    with rig_of(folder, monkeypatch) as opened:
        yield opened


# Ramps ------------------------------------------------------------------------------------------------------------


def test_whatever_way_heaters_are_moved_no_step_is_too_large_or_too_early(rig):
    bench = rig.bench
    banks = [bench.station.components[name] for name in bank_names(rig.family)]
    bench.set_voltages(UP)
    bench.set_voltage(2, 3.3)
    banks[0].set_voltages({0: 0.4})
    banks[0].channels[0].voltage.set(2.7)
    for bank in banks:
        bank.reconnect()
    bench.set_voltages(DOWN)
    threads = [threading.Thread(target=bench.set_voltages, args=(one,)) for one in (UP, DOWN)]
    threads += [threading.Thread(target=banks[-1].set_voltages, args=({0: volts},)) for volts in (3.0, 0.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.make_safe()
    bench.set_voltages(UP)
    bench.close()
    assert rig.jumps() == []
    assert rig.volts().max() == 0.0


# Limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "voltages",
    [
        np.full(HEATERS, np.nan),
        np.r_[np.inf, np.zeros(HEATERS - 1)],
        np.r_[-1e-6, np.zeros(HEATERS - 1)],
        np.zeros(HEATERS - 1),
        np.zeros((1, HEATERS)),
        np.float64(1.0),
        np.full(HEATERS, 1.0 + 0.5j),
        np.full(HEATERS, "1.0"),
        np.full(HEATERS, None),
        np.ma.array(np.ones(HEATERS), mask=np.arange(HEATERS) == 3),
        np.full(HEATERS, 1e308),
    ],
    ids=["nan", "inf", "negative", "short", "matrix", "scalar", "complex", "text", "none", "masked", "huge"],
)
def test_what_is_no_set_of_voltages_within_limits_moves_nothing(small_rig, voltages):
    with pytest.raises(LimitError, match="nothing was moved"):
        small_rig.bench.set_voltages(voltages)
    assert small_rig.trace == []


@pytest.mark.parametrize("heater", [-1, HEATERS, 1.0, True, slice(None), None, "mzi", np.arange(2)])
def test_what_is_no_position_of_a_heater_moves_nothing(small_rig, heater):
    with pytest.raises(LimitError, match="there is no heater"):
        small_rig.bench.set_voltage(heater, 1.0)
    assert small_rig.trace == []


def test_integers_and_scalars_of_numpy_are_numbers(small_rig):
    small_rig.bench.set_voltages(np.ones(HEATERS, dtype=np.int32))
    small_rig.bench.set_voltage(np.int64(3), np.float32(2.0))
    np.testing.assert_allclose(small_rig.volts(), np.where(np.arange(HEATERS) == 3, 2.0, 1.0), atol=1e-3)


def one_hot(heater, volts=HOT_V):
    return np.where(np.arange(HEATERS) == heater, volts, 0.0)


def most_hot(*heaters):
    return np.where(np.isin(np.arange(HEATERS), heaters), HOT_V, 0.0)


def test_heaters_moved_behind_the_bench_count_for_the_total_power(small_rig):
    """Three hot heaters are within the limit of the chip, six are not."""
    bench = small_rig.bench
    bank = bench.station.components["heaters_0"]
    bench.set_voltages(most_hot(0, 1, 2))
    bank.set_voltages({0: 0.0, 1: 0.0, 2: 0.0})
    bank.set_voltages({3: HOT_V, 4: HOT_V, 5: HOT_V})
    np.testing.assert_array_equal(bench.voltages, most_hot(3, 4, 5))
    with pytest.raises(LimitError, match="total_power_w"):
        bench.set_voltages(np.full(HEATERS, HOT_V))
    bench.set_voltages(most_hot(0, 1, 2))
    np.testing.assert_allclose(small_rig.volts(), most_hot(0, 1, 2), atol=0.01)
    assert max(small_rig.powers()) <= TOTAL_W
    with pytest.raises(LimitError, match="total_power_w"):
        bench.set_voltages(most_hot(0, 1, 2, 3, 4))


def test_heaters_moved_by_raw_commands_are_read_before_the_next_move(small_rig):
    bench = small_rig.bench
    bench.set_voltages(most_hot(0, 1, 2))
    bank = bench.station.components["heaters_0"]
    bank.make_safe()
    for heater in (3, 4, 5):
        for volts in range(1, int(HOT_V) + 1):
            bank.write(f"V{heater}={volts}")
    bench.set_voltages(most_hot(0, 1, 2))
    np.testing.assert_allclose(small_rig.volts(), most_hot(0, 1, 2), atol=0.01)
    assert max(small_rig.powers()) <= TOTAL_W


def test_a_heat_that_wanders_never_passes_the_total_power_also_after_a_failed_move(small_rig):
    bench, rng = small_rig.bench, np.random.default_rng(5)
    for _ in range(20):
        hot = rng.choice(HEATERS, 3, replace=False)
        if rng.random() < 0.3:
            small_rig.faults.drop("heaters_0")
        try:
            bench.set_voltages(most_hot(*hot))
        except InstrumentError:
            bench.station.components["heaters_0"].reconnect()
        bench.set_voltages(most_hot(*hot))
        np.testing.assert_allclose(small_rig.volts(), most_hot(*hot), atol=0.01)
    assert max(small_rig.powers()) <= TOTAL_W
    assert small_rig.jumps() == []


@pytest.mark.parametrize("left_on", [{2: 3.3}], ids=["3.3 V"])
def test_outputs_found_on_at_the_start_are_reported_and_ramped_only_on_command(tmp_path, monkeypatch, family, left_on):
    with rig_of(write_folder(tmp_path / "bench", family), monkeypatch, left_on=left_on) as rig:
        bench = rig.bench
        name = bench.layout.heaters[2]
        assert bench.found_at_start == {name: pytest.approx(3.3, abs=0.02)}
        assert bench.voltages[2] == pytest.approx(3.3, abs=0.02)
        bench.read_heaters()
        assert rig.trace == []
        bench.set_voltages(UP)
        np.testing.assert_allclose(rig.volts(), UP, atol=0.01)
    assert rig.volts().max() == 0.0
    assert rig.jumps(left_on) == []


def test_a_limit_that_is_lowered_while_running_holds_from_then_on(rig):
    bench = rig.bench
    bench.set_voltages(UP)
    bank = bench.station.components[bank_names(rig.family)[0]]
    bank.set_channel_limits(0, max_voltage=2.0)
    before = rig.volts()
    with pytest.raises(LimitError):
        bench.set_voltage(0, 2.5)
    np.testing.assert_array_equal(rig.volts(), before)
    bench.set_voltage(0, 2.0)


def test_an_open_heater_and_a_drifting_one_stay_within_the_limits(rig, caplog):
    """Each heater may take 50 mW; the resistance of one falls to a third, as the next reading shows."""
    bench, heaters = rig.bench, rig.bench.layout.heaters
    bench.set_voltages(np.full(HEATERS, 4.0))
    rig.faults.inject_on_chip(OpenHeater(heaters[1]))
    rig.faults.inject_on_chip(DriftingHeater(heaters[0], per_s=-0.7))
    bench.clock.sleep(1.0)
    bench.read_heaters()
    over = rig.chip.heater_current(0) > 1.1 * bench.max_current[0]
    assert (f"heater {heaters[0]}: measured" in caplog.text) == over
    with pytest.raises(LimitError, match="above the limit"):
        bench.set_voltage(0, HOT_V)
    bench.set_voltage(1, HOT_V)
    power = rig.volts() * rig.chip.heater_currents()
    assert (power <= 1.1 * bench.max_power).all()
    assert rig.volts()[0] <= 4.01
    rig.faults.clear()


def test_a_heater_that_is_a_short_from_the_start_never_takes_more_than_its_first_step(rig):
    bench, heaters = rig.bench, rig.bench.layout.heaters
    rig.faults.inject_on_chip(ShortedHeater(heaters[0], resistance_ohm=20.0))
    with pytest.raises((LimitError, InstrumentError)):
        bench.set_voltages(one_hot(0))
    assert rig.chip.heater_voltage(0) <= 1.0
    rig.faults.clear()
