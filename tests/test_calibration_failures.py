"""A calibration that fails on instruments without a wire: what it keeps, and how it leaves the chip."""

import bench_fakes
import numpy as np
import pytest
import xarray as xr
from bench_fakes import write_fake_folder
from test_bench_record import make_record

from calibration import calibrate, verify
from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError, LinkError

PORTS = 2


@pytest.fixture
def bench(tmp_path):
    bench_fakes.reset()
    with Bench.open(write_fake_folder(tmp_path / "bench", PORTS)) as opened:
        yield opened


def test_the_data_of_a_stage_that_fails_are_kept(bench, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)

    def dark(self):
        return bench_fakes._Reading(1e-9 * rng.standard_normal(self.port_count), np.ones(self.port_count, np.bool_))

    monkeypatch.setattr(bench_fakes.FakeMeter, "read_powers", dark)
    monkeypatch.setattr(bench_fakes.FakeHeaters, "read_currents", lambda self: np.zeros(self.channel_count))
    with pytest.raises(CalibrationError, match="in_0_theta: only 0 of 7 points carry current"):
        calibrate(bench, data_file=tmp_path / "run.nc")
    with xr.open_dataset(tmp_path / "run.nc", engine="h5netcdf") as data:
        assert data.attrs["stage"] == "heater resistances"
        assert data["resistance_voltage"].shape == data["resistance_current"].shape == (7, len(bench.layout.heaters))
        assert float(data["resistance_voltage"].min()) > 0.5
    assert bench.record is None


def test_a_dead_laser_does_not_keep_the_heaters_on(bench, monkeypatch):
    def only_on(self, on):
        if not on:
            raise LinkError(f"{self.name}: link is dead")

    monkeypatch.setattr(bench_fakes.FakeLaser, "set_light", only_on)
    with pytest.raises(CalibrationError, match="out of range") as caught:
        verify(bench, make_record(ports=PORTS), settings=1)
    assert len(bench_fakes.calls("heaters_0", "set_voltages")) == 2
    np.testing.assert_array_equal(bench.read_heaters().voltage_v, 0.0)
    assert any("laser: link is dead" in note for note in caught.value.__notes__)
