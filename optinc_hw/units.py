"""The one place where units are converted; everything else is SI (W, V, A, m, s, rad)."""

import math

WATT_PER_MILLIWATT = 1e-3
METRE_PER_NANOMETRE = 1e-9
AMPERE_PER_MILLIAMPERE = 1e-3
LIGHT_SPEED_M_S = 299_792_458.0


def dbm_to_watt(power_dbm: float) -> float:
    """Convert a power level in dBm to W."""
    return float(WATT_PER_MILLIWATT * 10.0 ** (power_dbm / 10.0))


def watt_to_dbm(power_w: float) -> float:
    """Convert a power in W to dBm; raises ValueError for powers <= 0 or not finite."""
    if not (power_w > 0.0 and math.isfinite(power_w)):
        raise ValueError(f"power {power_w!r} W has no level in dBm; it must be positive and finite")
    return 10.0 * math.log10(power_w / WATT_PER_MILLIWATT)


def nm_to_m(wavelength_nm: float) -> float:
    """Convert a wavelength in nm to m."""
    return wavelength_nm * METRE_PER_NANOMETRE


def m_to_nm(wavelength_m: float) -> float:
    """Convert a wavelength in m to nm."""
    return wavelength_m / METRE_PER_NANOMETRE


def m_to_hz(wavelength_m: float) -> float:
    """Convert a wavelength in vacuum in m to an optical frequency in Hz."""
    return LIGHT_SPEED_M_S / wavelength_m


def hz_to_m(frequency_hz: float) -> float:
    """Convert an optical frequency in Hz to a wavelength in vacuum in m."""
    return LIGHT_SPEED_M_S / frequency_hz


def ma_to_a(current_ma: float) -> float:
    """Convert a current in mA to A."""
    return current_ma * AMPERE_PER_MILLIAMPERE


def a_to_ma(current_a: float) -> float:
    """Convert a current in A to mA."""
    return current_a / AMPERE_PER_MILLIAMPERE


def db_to_ratio(gain_db: float) -> float:
    """Ratio of two powers that are ``gain_db`` dB apart."""
    return float(10.0 ** (gain_db / 10.0))


def db_to_amplitude(loss_db: float) -> float:
    """Field transmission of a section that loses ``loss_db`` dB of power."""
    return float(10.0 ** (-loss_db / 20.0))


def amplitude_to_db(transmission: float) -> float:
    """Loss of power in dB of a section that passes this part of the field; negative where it gains."""
    return float(-20.0 * math.log10(transmission))
