"""What must hold on every bench: on a simulated one, or on real instruments with ``pytest --bench FOLDER``.

Heaters are raised to a tenth of their voltage limit at most, and the light is switched on.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from mixed_benches import BENCHES, PORTS, write_mixed_folder

from optinc_hw.bench import Bench, write_bench_folder
from optinc_hw.bench.write import instrument_names
from optinc_hw.errors import ConfigurationError, LimitError, LinkError

SHARE_OF_LIMIT = 0.1


def pytest_generate_tests(metafunc):
    """Benches of several vendors are simulated, unless one is given."""
    given = metafunc.config.getoption("--bench")
    metafunc.parametrize("place", ["default", *BENCHES] if given is None else [given], indirect=True)


@pytest.fixture
def place(request, tmp_path):
    """Folder of the bench, and whether it is simulated."""
    if request.config.getoption("--bench") is not None:
        return Path(request.param).absolute(), False
    folder = tmp_path / "bench"
    if request.param in BENCHES:
        return write_mixed_folder(folder, request.param), True
    write_bench_folder(folder, PORTS, {name: f"nowhere:{name}" for name in instrument_names(PORTS)})
    return folder, True


@pytest.fixture
def bench(place):
    folder, simulate = place
    with Bench.open(folder, simulate=simulate) as opened:
        yield opened


def test_every_instrument_says_who_it_is_and_takes_a_snapshot(bench):
    for name in bench.description.roles:
        instrument = bench.station.components[name]
        assert instrument.get_idn()["vendor"]
        json.dumps(instrument.snapshot(update=True), allow_nan=False)


def test_small_voltages_arrive_and_draw_a_current(bench):
    movable = bench.layout.movable
    target = np.where(movable, SHARE_OF_LIMIT * bench.max_voltage, 0.0)
    bench.set_voltages(target)
    bench.settle()
    reading = bench.read_heaters()
    assert reading.voltage_v == pytest.approx(target, abs=0.02, rel=0.02)
    assert (reading.current_a[movable] > 0.0).all()
    assert (reading.current_a <= bench.max_current).all()
    bench.set_voltages(np.zeros_like(target))
    assert bench.read_heaters().voltage_v == pytest.approx(0.0, abs=0.05)


def test_what_exceeds_a_limit_moves_nothing(bench):
    before = bench.read_heaters().voltage_v
    target = bench.voltages
    heater = int(np.flatnonzero(bench.layout.movable)[0])
    target[heater] = 1.001 * bench.max_voltage[heater] + 0.01
    with pytest.raises(LimitError, match=bench.layout.heaters[heater]):
        bench.set_voltages(target)
    assert bench.read_heaters().voltage_v == pytest.approx(before, abs=0.02)


def test_light_is_seen_and_goes_out(bench):
    bench.light(on=True)
    bench.settle()
    lit = bench.read_detectors()
    bench.light(on=False)
    bench.settle()
    dark = bench.read_detectors()
    assert dark.valid.all()
    assert lit.power_w[lit.valid].max() > 10.0 * np.abs(dark.power_w).max()


def test_a_bench_is_left_safe_and_for_one_at_a_time(place):
    folder, simulate = place
    with Bench.open(folder, simulate=simulate) as bench:
        bench.set_voltages(np.where(bench.layout.movable, SHARE_OF_LIMIT * bench.max_voltage, 0.0))
        # A simulated chip belongs to its session and needs no lock; names of instruments do, in one process.
        refusal = (ConfigurationError, "already open in this process") if simulate else (LinkError, "in use")
        with pytest.raises(refusal[0], match=refusal[1]):
            Bench.open(folder, simulate=simulate)
        assert bench.voltages.any()
    with Bench.open(folder, simulate=simulate) as bench:
        assert bench.found_at_start == {}
