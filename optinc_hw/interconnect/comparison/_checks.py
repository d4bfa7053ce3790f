"""Checks of numbers that models of a comparison share."""

import math

from optinc_hw.errors import ComparisonError


def check_positive(name: str, value: float, unit: str = "") -> None:
    """Raise ComparisonError unless the value is positive and finite."""
    if not 0.0 < value < math.inf:
        raise ComparisonError(f"{name} must be positive and finite, got {value!r}{unit}")


def check_not_negative(name: str, value: float, unit: str = "") -> None:
    """Raise ComparisonError unless the value is 0 or more and finite."""
    if not 0.0 <= value < math.inf:
        raise ComparisonError(f"{name} must be 0 or more and finite, got {value!r}{unit}")


def check_whole(name: str, value: object, least: int) -> None:
    """Raise ComparisonError unless the value is an integer, no bool, of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ComparisonError(f"{name} must be an integer of at least {least}, got {value!r}")
