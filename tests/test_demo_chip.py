"""The demo's work on the chip, and a small demo from beginning to end."""

import json

import numpy as np
import pytest
import xarray as xr

from optinc_hw.bench import Bench, check_bench
from optinc_hw.bench.record import CalibrationRecord
from optinc_hw.demo import DemoSettings, run_demo
from optinc_hw.demo._chip import choose_sample, measure_matrix, nominal_twin
from optinc_hw.errors import ConfigurationError
from optinc_hw.onn import encode_pam4, quantised_mean


class LinearChip:
    """A tile runner that multiplies exactly and adds an offset to its outputs."""

    ports = 12

    def __init__(self, offset):
        self.offset = offset

    def program(self, matrix):
        self.matrix = matrix

    def forward(self, amplitudes):
        assert (np.abs(amplitudes) == 1.0).all()
        return amplitudes @ self.matrix.T + self.offset


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (4, 4), (3, 7), (8, 8), (12, 12)])
def test_a_matrix_is_measured_exactly_whatever_the_offset(shape):
    target = np.random.default_rng(1).uniform(-0.3, 0.3, shape)
    np.testing.assert_allclose(measure_matrix(LinearChip(0.5), target), target, atol=1e-12)


def test_the_sample_takes_zero_gradients_last():
    codes = np.full((50, 4), 128, dtype=np.uint8)
    codes[::5, 2] = 9
    rng = np.random.default_rng(0)
    assert sorted(choose_sample(codes, 10, 128, rng)) == list(range(0, 50, 5))
    assert sorted(choose_sample(codes, 1000, 128, rng)) == list(range(50))
    first, second = (choose_sample(codes, 10, 128, np.random.default_rng(seed)) for seed in (1, 1))
    np.testing.assert_array_equal(first, second)


def test_the_nominal_twin_is_the_design_and_nothing_else():
    with Bench.simulated(ports=2, seed=0) as bench:
        twin = nominal_twin(bench)
    assert not twin.offset.any()
    np.testing.assert_array_equal(twin.crosstalk, np.eye(len(twin.offset)))
    power = 2 * (twin.input_amplitude[0] ** 2 + twin.lo_amplitude[0] ** 2)
    assert power == pytest.approx(0.01)  # 10 dBm


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "report"
    stages = []
    settings = DemoSettings(ports=4, seed=1, elements=60, train_seeds=1, uncalibrated_elements=30, epochs=6)
    summary = run_demo(settings, folder, lambda stage, done, total: stages.append((stage, done, total)))
    return folder, summary, stages


def test_the_small_demo_finds_what_the_full_one_must(demo):
    _, summary, stages = demo
    assert summary.ports == 4
    assert summary.bench_elements == 60
    assert summary.bench_symbol_error_rate < 0.01
    assert summary.uncalibrated_symbol_error_rate > 0.4
    assert summary.twin_inputs == 28561
    assert summary.twin_symbol_error_rate < 1e-3
    assert summary.twin_residual_over_noise <= 3.0
    assert summary.accuracy_float - summary.accuracy_optical < 0.03
    assert summary.readings < summary.bench_readings
    assert summary.seconds["total"] == pytest.approx(sum(summary.seconds.values()) - summary.seconds["total"])
    assert [c.name for c in summary.criteria if not c.passed] == ["bench_elements"]
    assert {"calibration: twin fit", "twin: all inputs", "training", "bench: gradients"} <= {s for s, _, _ in stages}
    assert all(done >= 0 for _, done, _ in stages)


def test_the_report_is_complete(demo):
    folder, summary, _ = demo
    assert json.loads((folder / "summary.json").read_text()) == json.loads(json.dumps(summary.to_json_dict()))
    page = (folder / "index.html").read_text(encoding="utf-8")
    pictures = sorted(path.name for path in folder.glob("*.png"))
    assert pictures == [
        "heaters.png", "matrix.png", "phase_curves.png", "symbols.png", "tiles.png", "training.png", "twin.png",
    ]  # fmt: skip
    for name in pictures:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
        assert f'src="{name}"' in page
    assert not [path for path in folder.rglob("*") if path.name.endswith((".tmp", ".part"))]


def test_the_data_hold_what_the_figures_say(demo):
    folder, summary, _ = demo
    with xr.open_dataset(folder / "demo.nc", engine="h5netcdf") as file:
        data = file.load()
    wanted = encode_pam4(quantised_mean(data.sample_codes.to_numpy()), 8)
    np.testing.assert_array_equal(data.calibrated_wanted, wanted)
    decided = np.clip(np.floor(data.calibrated_symbols.to_numpy() + 0.5), 0, 3)
    assert float(np.mean(decided != wanted)) == summary.bench_symbol_error_rate
    assert float(data.accuracy.sel(averaging="optical")[0, -1]) == summary.accuracy_optical
    assert all("units" in variable.attrs and "long_name" in variable.attrs for variable in data.data_vars.values())
    with xr.open_dataset(folder / "calibration.nc", engine="h5netcdf") as file:
        assert file.attrs["readings"] == summary.readings


def test_the_reports_bench_can_be_used_again(demo):
    folder, summary, _ = demo
    assert check_bench(folder / "bench").ports == 4
    with Bench.open(folder / "bench", simulate=True, seed=1) as bench:
        record = bench.require_record()
    assert record.quality.residual_over_noise == summary.twin_residual_over_noise
    assert record == CalibrationRecord.load(folder / "bench" / "calibration_simulated_1.json")


def test_ports_out_of_range_leave_no_folder(tmp_path):
    with pytest.raises(ConfigurationError, match="2 to 64"):
        run_demo(DemoSettings(ports=1), tmp_path / "report")
    assert not (tmp_path / "report").exists()
