"""Calibration records: exact, readable, tamper-evident, and never half written."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from test_bench_record import make_record
from twins import imperfect_twin

from calibration import CalibrationRecord
from optinc_hw.bench.record import Quality, make_provenance
from optinc_hw.errors import CalibrationError, OptincError
from optinc_hw.photonics import TwinParameters
from optinc_hw.photonics.twin import parameter_shapes

QUALITY = Quality(
    residual_over_noise=2.5, held_out_settings=200, readings=5000, noise_relative=1e-3, noise_floor_w=5e-9
)


def provenance(**changes):
    values = {
        "seed": 4,
        "chip": "a chip",
        "laser_power_w": 0.01,
        "laser_wavelength_m": 1550e-9,
        "created": datetime(2026, 3, 1, 12, tzinfo=UTC),
        "data_file": "run.nc",
        "data_sha256": "f" * 64,
    }
    return make_provenance(**(values | changes))


def record_of(twin, **changes):
    heaters, rng = len(twin.offset), np.random.default_rng(0)
    values = {
        "resistance_ohm": 1200.0 + rng.standard_normal(heaters),
        "beta_per_w": 0.8 + 0.1 * rng.standard_normal(heaters),
        "sigmas": (np.full(heaters, 1e-3), np.full(heaters, 0.02)),
        "quality": QUALITY,
        "provenance": provenance(),
    }
    return CalibrationRecord.from_twin(twin, **(values | changes))


def assert_same_twin(first, second):
    assert first.ports == second.ports
    assert first.layout == second.layout
    for name in parameter_shapes(first.layout):
        rounding = 5.1e-11 if name == "crosstalk" else 0.0
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=4e-16, atol=rounding, err_msg=name)


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(0, 1000))
def test_the_twin_comes_out_as_it_went_in(ports, seed):
    twin = imperfect_twin(ports, seed)
    assert_same_twin(record_of(twin).twin(), twin)


def test_a_record_survives_its_file(tmp_path):
    record = record_of(imperfect_twin(4, 0))
    record.save(tmp_path / "record.json")
    loaded = CalibrationRecord.load(tmp_path / "record.json")
    assert loaded == record
    assert loaded.content_hash == record.content_hash
    assert_same_twin(loaded.twin(), record.twin())
    np.testing.assert_array_equal(loaded.resistance_ohm, record.resistance_ohm)
    np.testing.assert_array_equal(loaded.resistance_beta_per_w, record.resistance_beta_per_w)
    assert loaded.provenance.created_utc == datetime(2026, 3, 1, 12, tzinfo=UTC)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "record.json").read_bytes()


def test_a_record_is_readable_by_name(tmp_path):
    twin = imperfect_twin(3, 0)
    record_of(twin).save(tmp_path / "record.json")
    content = json.loads((tmp_path / "record.json").read_text())
    layout = twin.layout
    assert set(content["heaters"]) == set(layout.heaters)
    phi = layout.heater_index["mzi_1_1_phi"]
    assert content["heaters"]["mzi_1_1_phi"]["p_pi_w"] == np.pi / twin.efficiency[phi]
    assert content["heaters"]["mzi_1_1_phi"]["offset_rad"] == twin.offset[phi]
    assert content["mesh"]["mzi_1_1"]["eta_in_rad"] == twin.mesh_eta[layout.mesh.mzis.index((1, 1)), 0]
    assert content["detectors"]["rx_2_minus"]["gain"] == twin.gain[5]
    assert content["port"][1]["lo_amplitude_sqrt_w"] == twin.lo_amplitude[1]
    row = dict(zip(content["crosstalk"]["heating"], content["crosstalk"]["rows"]["mzi_1_1_phi"], strict=True))
    for name, coefficient in row.items():
        assert coefficient == pytest.approx(twin.crosstalk[phi, layout.heater_index[name]], abs=5.1e-11)


def test_a_record_cannot_be_changed():
    record = record_of(imperfect_twin(2, 0))
    with pytest.raises(ValidationError):
        record.ports = 3
    with pytest.raises(ValidationError):
        record.quality.residual_over_noise = 0.0


def paths_of(value, path=()):
    """Paths to every number and text of a JSON document."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from paths_of(entry, (*path, key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from paths_of(entry, (*path, index))
    else:
        yield path


SAVED = record_of(imperfect_twin(2, 0))
PATHS = list(paths_of({"content_hash": SAVED.content_hash, **SAVED.model_dump(mode="json", exclude_none=True)}))


def edit(content, path, value=None):
    *parents, last = path
    for key in parents:
        content = content[key]
    old = content[last] if value is None else None
    content[last] = value if value is not None else (old + "0" if isinstance(old, str) else old * 1.0000001 + 1e-9)


@settings(max_examples=60)
@given(st.sampled_from(PATHS))
def test_every_edit_is_noticed(tmp_path_factory, path):
    file = tmp_path_factory.mktemp("record") / "record.json"
    SAVED.save(file)
    content = json.loads(file.read_text())
    edit(content, path)
    file.write_text(json.dumps(content))
    with pytest.raises(CalibrationError, match=r"record\.json"):
        CalibrationRecord.load(file)


def saved(tmp_path, change):
    file = tmp_path / "record.json"
    SAVED.save(file)
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: edit(c, ("heaters", "lo", "p_pi_w"), 0.021), "changed after the calibration; restore it"),
        (lambda c: c.update(colour="blue"), "colour: Extra inputs are not permitted; calibrate again"),
        (lambda c: c["heaters"]["lo"].update(colour=1), r"heaters\.lo\.colour: Extra inputs"),
        (lambda c: c.update(version=3), "version: Input should be 2; calibrate again"),
        (lambda c: c.pop("version"), "calibrate again"),
        (lambda c: edit(c, ("detectors", "rx_0_plus", "gain"), str(c["detectors"]["rx_0_plus"]["gain"])), "changed"),
        (lambda c: c.pop("mesh"), "mesh: Field required"),
        (lambda c: c.pop("content_hash"), "it has no content_hash"),
        (lambda c: edit(c, ("heaters", "lo", "p_pi_w"), -1.0), r"heaters\.lo\.p_pi_w: Input should be greater than 0"),
        (lambda c: edit(c, ("heaters", "lo", "offset_rad"), float("nan")), r"heaters\.lo\.offset_rad: .* finite"),
        (lambda c: edit(c, ("detectors", "rx_0_plus", "gain"), "high"), r"detectors\.rx_0_plus\.gain: .*number"),
        (lambda c: c.update(ports=3), "heaters do not name exactly those of a chip of 3 ports"),
        (lambda c: c["heaters"].pop("lo"), "heaters do not name exactly"),
        (lambda c: c["mesh"].update(mzi_7_7=c["mesh"]["mzi_0_0"]), "mesh and stuck describe no chip of 2 ports: MZI"),
        (lambda c: c["port"].append(c["port"][0]), "port has 3 entries, the chip has 2 ports"),
        (
            lambda c: c["port"][1].pop("lo_amplitude_sqrt_w"),
            r"port\.1\.lo_amplitude_sqrt_w does not fit a chip with inp",
        ),
        (lambda c: c.update(receivers="power"), "detectors do not name exactly|heaters do not name exactly"),
        (lambda c: c.update(inputs="fibres"), "inputs: Input should be 'modulators' or 'ports'"),
        (lambda c: edit(c, ("crosstalk", "heating", 0), "nobody"), "rows name an unknown heater: in_0_theta"),
        (lambda c: edit(c, ("crosstalk", "heating", 0), "in_0_phi"), "heating names a heater twice"),
        (
            lambda c: c["crosstalk"]["rows"]["in_0_phi"].pop(),
            "the row of in_0_phi has 10 numbers, not one for each of 11",
        ),
        (
            lambda c: edit(c, ("crosstalk", "rows", "in_0_phi", 1), 1.1),
            "must hold 1 for in_0_phi itself, by definition",
        ),
        (
            lambda c: c.update(crosstalk={"heating": ["a"], "rows": {"a": [1.0]}}),
            r"crosstalk\.heating does not name exa",
        ),
        (lambda c: edit(c, ("provenance", "parent_hash"), "abc"), r"provenance\.parent_hash: String should match"),
        (lambda c: edit(c, ("provenance", "created_utc"), "2026-01-01T00:00:00"), "timezone"),
    ],
)
def test_a_record_that_is_not_right_says_what_and_what_to_do(tmp_path, change, message):
    file = saved(tmp_path, change)
    with pytest.raises(CalibrationError, match=message) as caught:
        CalibrationRecord.load(file)
    assert str(file) in str(caught.value)


@given(st.floats(0.0, 0.999))
@settings(max_examples=20)
def test_a_truncated_file_is_refused(tmp_path_factory, share):
    file = tmp_path_factory.mktemp("record") / "record.json"
    SAVED.save(file)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * (len(whole) - 2))])
    with pytest.raises(CalibrationError, match=r"cannot read the calibration record .*record\.json"):
        CalibrationRecord.load(file)


@pytest.mark.parametrize("content", [b"[]", b"3", b'"text"', b"null", b"\xff\xfe\x00", b"{}"])
def test_a_file_that_is_no_record_is_refused(tmp_path, content):
    file = tmp_path / "record.json"
    file.write_bytes(content)
    with pytest.raises(CalibrationError, match=r"record\.json"):
        CalibrationRecord.load(file)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CalibrationError, match=r"cannot read the calibration record .*missing\.json: .*No such file"):
        CalibrationRecord.load(tmp_path / "missing.json")


@pytest.mark.parametrize("method", ["replace", "open"])
def test_a_save_that_fails_leaves_the_old_file_whole(tmp_path, monkeypatch, method):
    file = tmp_path / "record.json"
    SAVED.save(file)
    before = file.read_bytes()

    def fail(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, method, fail)
        with pytest.raises(CalibrationError, match=r"cannot write the calibration record .*No space left"):
            record_of(imperfect_twin(2, 1)).save(file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_an_interrupted_save_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupt(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        SAVED.save(tmp_path / "record.json")
    assert list(tmp_path.iterdir()) == []


def test_a_save_into_a_missing_folder_is_named(tmp_path):
    with pytest.raises(CalibrationError, match="cannot write the calibration record"):
        SAVED.save(tmp_path / "missing" / "record.json")


def test_crosstalk_of_a_heater_on_itself_is_never_dropped_silently():
    twin = imperfect_twin(2, 0)
    crosstalk = twin.crosstalk.copy()
    crosstalk[3, 3] = 1.01
    with pytest.raises(CalibrationError, match="on itself is not 1"):
        record_of(replace(twin, crosstalk=crosstalk))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("efficiency", -100.0, r"heaters?\.?.*p_pi_w: Input should be greater than 0|p_pi_w"),
        ("gain", 0.0, "gain: Input should be greater than 0"),
        ("mzi_transmission", -0.5, "transmission: Input should be greater than 0"),
    ],
)
def test_impossible_parameters_make_no_record(name, value, message):
    twin = imperfect_twin(2, 0)
    spoilt = getattr(twin, name).copy()
    spoilt[0] = value
    with pytest.raises(CalibrationError, match=message) as caught:
        record_of(replace(twin, **{name: spoilt}))
    assert isinstance(caught.value, OptincError)


def test_the_hash_depends_on_content_and_not_on_order():
    first = record_of(imperfect_twin(2, 0))
    assert re.fullmatch("[0-9a-f]{64}", first.content_hash)
    assert first.content_hash == record_of(imperfect_twin(2, 0)).content_hash
    assert first.content_hash != record_of(imperfect_twin(2, 1)).content_hash
    assert first.content_hash != record_of(imperfect_twin(2, 0), provenance=provenance(seed=5)).content_hash
    content = first.model_dump(mode="json")
    reordered = {key: content[key] for key in reversed(content)}
    reordered["heaters"] = dict(reversed(content["heaters"].items()))
    assert CalibrationRecord.model_validate(reordered).content_hash == first.content_hash


def test_the_nominal_twin_makes_a_record_without_crosstalk():
    record = record_of(TwinParameters.nominal(3, input_amplitude=0.03, lo_amplitude=0.02))
    assert record.crosstalk.rows == {}
    np.testing.assert_array_equal(record.twin().crosstalk, np.eye(len(record.heaters)))
    assert make_record(3).twin().ports == 3


KINDS = [("ports", "power"), ("modulators", "power"), ("ports", "homodyne")]


def bare_twin(ports, inputs, receivers):
    rng = np.random.default_rng(ports)
    nominal = TwinParameters.nominal(ports, input_amplitude=0.03, lo_amplitude=0.02, inputs=inputs, receivers=receivers)
    heaters, mzis = len(nominal.offset), len(nominal.mzi_transmission)
    crosstalk = 0.01 * rng.standard_normal((heaters, heaters))
    np.fill_diagonal(crosstalk, 1.0)
    return replace(
        nominal,
        offset=rng.uniform(0.0, 6.0, heaters),
        crosstalk=crosstalk,
        arm_loss=0.01 * rng.standard_normal((mzis, 2)),
        second_order=np.array([1e-3, -2e-3]),
    )


@pytest.mark.parametrize(("inputs", "receivers"), KINDS)
def test_records_of_other_kinds_of_chips_survive_their_files(tmp_path, inputs, receivers):
    twin = bare_twin(4, inputs, receivers)
    record = record_of(twin)
    record.save(tmp_path / "record.json")
    loaded = CalibrationRecord.load(tmp_path / "record.json")
    assert loaded == record
    assert_same_twin(loaded.twin(), twin)
    port = json.loads((tmp_path / "record.json").read_text())["port"][0]
    assert ("input_modulator" in port) == (inputs == "modulators")
    assert ("attenuator" in port) == ("lo_amplitude_sqrt_w" in port) == (receivers == "homodyne")


def test_a_row_of_crosstalk_is_one_line_of_numbers(tmp_path):
    record = record_of(bare_twin(8, "ports", "power"))
    record.save(tmp_path / "record.json")
    text = (tmp_path / "record.json").read_text()
    (line,) = [line for line in text.splitlines() if line.strip().startswith('"mzi_1_1_phi": [')]
    assert len(json.loads("{" + line.rstrip(",") + "}")["mzi_1_1_phi"]) == 56
    assert len(text) < 56 * (56 * 14 + 500)  # with one number a line it would be more


def test_a_correction_names_the_record_that_it_corrects(tmp_path):
    first = record_of(imperfect_twin(2, 0))
    assert (first.provenance.kind, first.provenance.parent_hash) == ("full", None)
    second = record_of(imperfect_twin(2, 1), provenance=provenance(corrected=first))
    assert (second.provenance.kind, second.provenance.parent_hash) == ("drift", first.content_hash)
    second.save(tmp_path / "record.json")
    assert CalibrationRecord.load(tmp_path / "record.json").provenance == second.provenance


# Written by the software of b2844c8, which knew version 1 only: the twin of `imperfect_twin(2, 0)`.
VERSION_1 = Path(__file__).parent / "records" / "version_1.json"


def test_a_record_of_version_1_is_read_as_the_same_calibration(tmp_path):
    record = CalibrationRecord.load(VERSION_1)
    assert_same_twin(record.twin(), imperfect_twin(2, 0))
    assert (record.version, record.inputs, record.receivers) == (2, "modulators", "homodyne")
    assert record.provenance.kind == "full"
    record.save(tmp_path / "again.json")
    assert CalibrationRecord.load(tmp_path / "again.json") == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: edit(c, ("heaters", "lo", "p_pi_w"), 0.021), "changed after the calibration; restore it"),
        (lambda c: c.update(inputs="ports"), "inputs: Extra inputs are not permitted; calibrate again"),
        (lambda c: edit(c, ("crosstalk", 0, "heated"), "nobody"), "crosstalk names an unknown heater: nobody"),
        (lambda c: c["crosstalk"].append(c["crosstalk"][0]), "crosstalk names a pair of heaters twice"),
        (lambda c: edit(c, ("crosstalk", 0, "heated"), c["crosstalk"][0]["heating"]), "on itself is 1 by definition"),
        (lambda c: c["heaters"].pop("lo"), "unknown heater|heaters do not name exactly"),
    ],
)
def test_faults_of_a_record_of_version_1_are_found_as_before(tmp_path, change, message):
    content = json.loads(VERSION_1.read_text())
    change(content)
    file = tmp_path / "record.json"
    file.write_text(json.dumps(content))
    with pytest.raises(CalibrationError, match=message) as caught:
        CalibrationRecord.load(file)
    assert str(file) in str(caught.value)
