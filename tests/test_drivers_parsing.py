"""Strict parsers of reply lines."""

import locale
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers._parsing import (
    parse_flag,
    parse_identity,
    parse_integer,
    parse_level,
    parse_number,
    parse_reading,
    parse_system_error,
)
from drivers._qontrol_protocol import explain_errors, parse_amperes, parse_ok, parse_volts


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("+.5", 0.5), ("1.", 1.0), ("-0", 0.0), ("+1.55000000E-006", 1.55e-6), ("007", 7.0)],
)
def test_numbers(text, value):
    assert parse_number(text) == value
    assert parse_reading(text) == value


@pytest.mark.parametrize(
    "text", ["", "-0.-1", "0,5", "1_0", "1 0", " 1", "1\n", "0x10", "1e", "e5", ".", "--1", "١", "1.0 V", "nanV"]
)
def test_texts_that_are_no_numbers(text):
    for parse in (parse_number, parse_reading, parse_level):
        with pytest.raises(ValueError, match="no number"):
            parse(text)


@pytest.mark.parametrize("text", ["9.9E37", "-9.9E37", "9.91E+37", "+3.4028235E+038", "1e999", "1E20"])
def test_codes_are_no_values(text):
    assert math.isnan(parse_reading(text))
    with pytest.raises(ValueError, match="out-of-range"):
        parse_number(text)


@pytest.mark.parametrize("text", ["NAN", "nan", "inf", "-INF", "+Infinity"])
def test_words_for_no_reading(text):
    assert math.isnan(parse_reading(text))
    with pytest.raises(ValueError, match="no number"):
        parse_number(text)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e19, max_value=1e19))
def test_every_written_number_is_read_back(value):
    assert parse_number(repr(value)) == value
    assert parse_number(f"{value:+.8E}") == float(f"{value:.8E}")


@given(st.text(max_size=12))
def test_parsers_raise_nothing_but_value_errors(text):
    parsers = (
        parse_number,
        parse_reading,
        parse_integer,
        parse_flag,
        parse_identity,
        parse_system_error,
        parse_volts,
        parse_amperes,
        parse_ok,
    )
    for parse in parsers:
        try:
            parse(text)
        except ValueError:
            continue


def test_the_locale_does_not_matter(monkeypatch):
    monkeypatch.setattr(locale, "localeconv", lambda: {"decimal_point": ",", "thousands_sep": "."})
    assert parse_number("0.5") == 0.5
    with pytest.raises(ValueError, match="no number"):
        parse_number("0,5")


@pytest.mark.parametrize("text", ["-200", "+150", "-9.9E37"])
def test_sentinel_levels_are_refused(text):
    with pytest.raises(ValueError, match=r"no level|out-of-range"):
        parse_level(text)


def test_integers_and_flags():
    assert parse_integer("-12") == -12
    assert parse_flag("+1") is True
    assert parse_flag("0") is False
    for text in ("2", "9.91E+37", "1.0", "on"):
        with pytest.raises(ValueError, match=r"neither|no integer"):
            parse_flag(text)


def test_identities():
    identity = parse_identity("SANTEC, TSL-570,21020001,0001.0000.0001")
    assert identity.as_dict() == {
        "vendor": "SANTEC",
        "model": "TSL-570",
        "serial": "21020001",
        "firmware": "0001.0000.0001",
    }
    for text in ("SANTEC,TSL-570,1", "a,b,c,d,e", ",b,c,d", "x"):
        with pytest.raises(ValueError, match="no identity"):
            parse_identity(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('+0,"No error"', (0, "No error")),
        ("0,No error", (0, "No error")),
        ('-113,"Undefined header"', (-113, "Undefined header")),
        ('-222,"Data out of range;0,5"', (-222, "Data out of range;0,5")),
    ],
)
def test_system_errors(text, expected):
    assert parse_system_error(text) == expected


@given(st.integers(-120000, 120000))
def test_qontrol_voltages_and_currents(steps):
    assert parse_volts(f"{steps / 1e4:+.4f} V") == steps / 1e4
    assert parse_amperes(f"{steps / 1e4:+.4f} mA") == pytest.approx(steps / 1e7, rel=1e-12, abs=1e-18)


@pytest.mark.parametrize("text", ["2.5 V", "+2.5", "+2.5 mV", "+2.5  V", "E01:03", "OK", "+2.5000 V+1.0000 V"])
def test_what_is_no_qontrol_measurement(text):
    with pytest.raises(ValueError, match="no voltage"):
        parse_volts(text)
    with pytest.raises(ValueError, match="no current"):
        parse_amperes(text)


def test_qontrol_error_lines_name_every_channel_they_may_mean():
    assert explain_errors(1, ["E01:03"]) == "E01:03 (over-voltage)"
    text = explain_errors(3, ["E02:03", "E30:00", "E77:00"])
    assert "E02:03 (over-current, ambiguous between modules: channel 3 or 11 or 19)" in text
    assert "E30:00 (too many errors, some suppressed)" in text
    assert "E77:00 (undocumented error)" in text
