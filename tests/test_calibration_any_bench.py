"""Calibration needs nothing but the protocols of the roles: it works with instruments of any vendor."""

import pytest
from mixed_benches import BENCHES, write_mixed_folder

from calibration import calibrate, verify
from optinc_hw.bench import Bench


@pytest.mark.parametrize("name", BENCHES)
def test_a_chip_is_calibrated_with_instruments_of_other_vendors(tmp_path, name):
    with Bench.open(write_mixed_folder(tmp_path / "bench", name), simulate=True, seed=1) as bench:
        record = calibrate(bench, settings=60, held_out=20)
        assert record.quality.residual_over_noise < 3.0
        assert verify(bench, record).good
