"""Why a record no longer predicts its chip: what changed in the hidden chip is named."""

import re

import pytest
from true_records import TrueMesh

from calibration import verify

SETTINGS = 24


@pytest.fixture(scope="module")
def mesh():
    return TrueMesh.of("method_a", 4, 1)


def found(mesh, settings=SETTINGS, **changes):
    with mesh.bench(**changes) as bench:
        return verify(bench, mesh.record(), settings=settings)


def number(pattern, text):
    return float(re.search(pattern, text)[1])


def test_a_true_record_is_good_and_needs_no_reason(mesh):
    result = found(mesh)
    assert result.good
    assert result.reason == ""
    assert 0.7 < result.residual_over_noise < 2.0


def test_a_wrong_wavelength_is_named(mesh):
    """The chip is designed for light 10 nm shorter than that which enters it: couplers turn, heat does less."""
    effects = {"design_wavelength_m": 1540e-9, "coupler_dispersion_rad_per_nm": 0.005}
    result = found(mesh, effects=effects)
    assert not result.good
    assert "a wrong wavelength does" in result.reason
    assert "1550 nm" in result.reason
    assert number(r"turned by ([-+.\d]+) rad", result.reason) == pytest.approx(0.05, abs=0.003)
    assert number(r"grow by ([-+.\d]+)%", result.reason) == pytest.approx(100.0 * (1540.0 / 1550.0 - 1.0), abs=0.1)


def test_lost_light_at_a_port_is_named_with_its_size(mesh):
    result = found(mesh, truth={"output_loss_db": {1: 3.0}})
    assert not result.good
    assert number(r"by ([-+.\d]+) dB at all ports", result.reason) == pytest.approx(0.0, abs=0.05)
    assert number(r"most at output 1, by ([-+.\d]+) dB", result.reason) == pytest.approx(-3.0, abs=0.05)


def test_changed_resistances_are_named(mesh):
    result = found(mesh, drift={"resistance_change": -0.02, "seed": 1})
    assert not result.good
    assert number(r"all phases grow by ([-+.\d]+)%", result.reason) == pytest.approx(
        100.0 * (1.0 / 0.98 - 1.0), abs=0.1
    )
    assert "optinc recalibrate" in result.reason


def test_drift_of_phases_has_no_such_reason(mesh):
    result = found(mesh, drift={"offset_rms_rad": 0.3, "seed": 1})
    assert not result.good
    assert result.reason.startswith("neither")
    assert "optinc recalibrate" in result.reason


def test_few_settings_give_a_verdict_without_a_reason(mesh):
    result = found(mesh, settings=4, drift={"offset_rms_rad": 0.3, "seed": 1})
    assert not result.good
    assert result.reason == ""
