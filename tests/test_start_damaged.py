"""The start of bare meshes with several dead heaters and a dead detector; truth is read only to judge."""

import numpy as np
import pytest
from _lab_mesh import LabMesh

from calibration._mesh_fit import predict
from calibration._mesh_linear import MeshData
from calibration._start import find_start
from calibration._twin_fit import NoiseModel
from optinc_hw.photonics import ChipLayout

CHIPS = {
    "inputs": (0, ("mzi_0_4_phi", "mzi_4_0_phi", "mzi_3_3_phi"), 3),
    "outputs": (7, ("mzi_5_1_phi", "mzi_5_3_theta", "mzi_2_2_phi"), 5),  # no whole MZI in the last column
    "within": (11, ("mzi_3_3_theta", "mzi_3_1_phi", "mzi_0_4_theta"), 4),
}


def damaged(seed, dead, blind, *, known, **options):
    chip = LabMesh(6, seed, dead=dead, blind=(blind,), **options)
    if known:
        chip.layout = ChipLayout(6, stuck=dead, inputs="ports", receivers="power")
    return chip


def start(chip):
    return find_start(chip, np.random.default_rng(0), NoiseModel(chip.relative, chip.floor_w), lambda *_: None)


def new_settings(chip, count=60):
    """Settings that the start has not seen, and what comes out without noise."""
    rng = np.random.default_rng(99)
    power = rng.uniform(size=(count, len(chip.max_power_w))) * 2.0 * np.pi / chip.nominal_efficiency
    lit = rng.integers(chip.layout.ports, size=count)
    return MeshData(power, lit, chip.powers(power, lit))


def distance(chip, found, blind):
    data, seen = new_settings(chip), np.arange(chip.layout.ports) != blind
    told = predict(found.parameters, data.power_w, data.lit)[:, seen]
    read = data.readings_w[:, seen]
    shares = [values / values.sum(axis=1, keepdims=True) for values in (told, read)]
    return 0.5 * float(np.abs(shares[0] - shares[1]).sum(axis=1).mean())


@pytest.mark.parametrize(("name", "known"), [("inputs", False), ("outputs", False), ("within", True)])
def test_damaged_chips_start(name, known):
    seed, dead, blind = CHIPS[name]
    chip = damaged(seed, dead, blind, known=known)
    found = start(chip)
    # Powers do not show external phases of the first column.
    shown = {heater for heater in dead if known or not heater.startswith("mzi_0") or heater.endswith("theta")}
    assert set(found.parameters.stuck) == shown
    assert found.dead_detectors == (f"rx_{blind}",)
    assert found.doubt == ""
    # Crosstalk, which the start leaves out, makes about 0.05; a twin that knows nothing has about 0.4.
    assert distance(chip, found, blind) < 0.1


def test_the_common_efficiency_is_found_although_no_mzi_of_the_last_column_is_whole():
    seed, dead, blind = CHIPS["outputs"]
    chip = damaged(seed, dead, blind, known=True, efficiency=1.15)
    found = start(chip)
    np.testing.assert_allclose(found.parameters.efficiency / chip.nominal_efficiency, 1.15, rtol=0.05)
    assert distance(chip, found, blind) < 0.1
