"""What a calibration says of a twin that is not good, but not refused."""

import logging

import pytest

from calibration import calibrate
from optinc_hw import Bench


@pytest.mark.parametrize(("settings", "warned"), [(20, True), (200, False)])
def test_a_mediocre_twin_is_announced(tmp_path, caplog, settings, warned):
    """Too few settings leave crosstalk to the priors: usable, yet beyond three times the noise."""
    with Bench.simulated(ports=2, seed=4) as bench, caplog.at_level(logging.WARNING, logger="calibration"):
        record = calibrate(bench, settings=settings, held_out=60, data_file=tmp_path / "run.nc")
    assert (record.quality.residual_over_noise > 3.0) == warned
    said = [entry for entry in caplog.records if "times the noise" in entry.getMessage()]
    assert bool(said) == warned
