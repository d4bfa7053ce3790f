"""What can be set on Santec's power meter mainframe, verified, and which modules it has."""

import re

import numpy as np
from numpy.typing import NDArray
from qcodes.parameters import Parameter
from qcodes.validators import Bool, Ints, Numbers

from drivers._mpm_parsing import ERRORS, parse_numbers, parse_ports, parse_range_level, parse_slots
from drivers._parsing import Identity, parse_flag, parse_identity, parse_integer, parse_number
from drivers._scpi import ScpiInstrument
from optinc_hw.errors import IdentityError, LimitError
from optinc_hw.units import dbm_to_watt, m_to_nm, nm_to_m

_MODEL = re.compile(r"MPM-210H?|MPM-220")
_PORTS = {"MPM-211": 4}
"""Ports of modules for which they are known; others are counted in a reading."""
_UPPER_LIMITS_DBM = {"MPM-211": (10.0, 0.0, -10.0, -20.0, -30.0)}
_LOWEST_UPPER_LIMITS_DBM = (10.0, 0.0, -15.0, -25.0, -40.0)
"""Upper limits of levels 1 to 5; for other modules those of the type with the lowest ones."""
_LIMIT_MARGIN = 1.02
_WAVELENGTHS_NM = (1250.0, 1630.0)
_WAVELENGTH_TOLERANCE_NM = 0.6e-3
_AVERAGING_MS = (0.01, 10_000.0)
_AVERAGING_STEP_MS = 0.01


class MPMSettings(ScpiInstrument):
    """Modules and settings of the mainframe; a subclass sets the attributes, attaches the link and adds readings."""

    _error_query = "ERR?"
    # Modules answer MMVER? in the form of an identity, but with another vendor's spelling and another model.
    _identity_reply = re.compile(rb"SANTEC,MPM-2[12]0[^,]*,[^,]*,[^,]*")

    address: str
    _expected_modules: int
    _modules: dict[int, Identity]
    _port_counts: dict[int, int]

    def _add_parameters(self) -> None:
        self.wavelength = self.add_parameter(
            "wavelength",
            label="Wavelength",
            unit="m",
            vals=Numbers(*(nm_to_m(limit) for limit in (_WAVELENGTHS_NM[0] - 1e-6, _WAVELENGTHS_NM[1] + 1e-6))),
            get_cmd=lambda: nm_to_m(self._live_link().query("WAV?", parse_number)),
            set_cmd=self._set_wavelength,
            docstring="Control the wavelength that the power of all ports is calculated for.",
        )
        self.averaging_time = self.add_parameter(
            "averaging_time",
            label="Averaging time",
            unit="s",
            vals=Numbers(min_value=0.999e-5, max_value=10.0),
            get_cmd=lambda: 1e-3 * self._live_link().query("AVG?", parse_number),
            set_cmd=self._set_averaging_time,
            docstring="Control the averaging time of all ports, in steps of 10 us.",
        )
        self.auto_range = self.add_parameter(
            "auto_range",
            label="Automatic range",
            vals=Bool(),
            get_cmd=lambda: self._live_link().query("AUTO?", parse_flag),
            set_cmd=lambda on: self._set_integer("AUTO", int(on)),
            docstring="Control whether each port chooses its range.",
        )
        self.range_level = self.add_parameter(
            "range_level",
            label="Range level",
            vals=Ints(1, len(_LOWEST_UPPER_LIMITS_DBM)),
            get_cmd=lambda: self._live_link().query("LEV?", parse_range_level),
            set_cmd=lambda level: self._set_integer("LEV", level),
            docstring="Control the range of all ports while it is not automatic: 1 up to 10 dBm, 5 the most sensitive.",
        )

    @property
    def port_count(self) -> int:
        """Number of ports of all modules."""
        return sum(self._port_counts.values())

    @property
    def modules(self) -> dict[int, Identity]:
        """Identity of the module in each slot that holds one."""
        return dict(self._modules)

    def _upper_limits_w(self, slots: list[int], *, automatic: bool) -> NDArray[np.float64]:
        """Return the power in W of each port beyond which its reading is no measurement; (ports,)."""
        level = 1 if automatic else self.range_level.get()
        limits: list[float] = []
        for slot in slots:
            table = _UPPER_LIMITS_DBM.get(self._modules[slot].model, _LOWEST_UPPER_LIMITS_DBM)
            limits += [_LIMIT_MARGIN * dbm_to_watt(table[level - 1])] * self._port_counts[slot]
        return np.array(limits)

    def _set_integer(self, word: str, value: int) -> None:
        with self._live_link().lock:
            self._write_checked(f"{word} {value}")
            self._verify_integer(word, value)

    def _verify_integer(self, word: str, value: int) -> None:
        actual = self._live_link().query(f"{word}?", parse_integer)
        if actual != value:
            raise self._not_applied(word, actual, value, "")

    def _set_numbers(self, word: str, *values: float) -> None:
        link = self._live_link()
        with link.lock:
            self._write_checked(f"{word} {','.join(f'{value:.3f}' for value in values)}")
            actual = link.query(f"{word}?", parse_numbers)
            if len(actual) != len(values) or any(
                abs(found - value) > _WAVELENGTH_TOLERANCE_NM for found, value in zip(actual, values, strict=True)
            ):
                raise self._not_applied(word, actual, values, "nm")

    def _check_wavelength(self, wavelength_m: float) -> None:
        shortest, longest = _WAVELENGTHS_NM
        if not shortest - 1e-6 <= m_to_nm(wavelength_m) <= longest + 1e-6:
            raise LimitError(
                f"{self.name}: the wavelength cannot be {m_to_nm(wavelength_m):g} nm; the limits are {shortest:g} to "
                f"{longest:g} nm. Nothing was changed"
            )

    def _check_averaging_time(self, seconds: float) -> float:
        """Return an averaging time in whole steps, in ms."""
        shortest, longest = _AVERAGING_MS
        if not shortest * (1 - 1e-9) <= 1e3 * seconds <= longest * (1 + 1e-9):
            raise LimitError(
                f"{self.name}: the averaging time cannot be {seconds} s; the limits are {1e-3 * shortest:g} to "
                f"{1e-3 * longest:g} s. Nothing was changed"
            )
        return round(1e3 * seconds / _AVERAGING_STEP_MS) * _AVERAGING_STEP_MS

    def _set_wavelength(self, wavelength_m: float) -> None:
        self._check_wavelength(wavelength_m)
        with self._live_link().lock:
            self._write_checked(f"WAV {m_to_nm(wavelength_m):.3f}")
            self._verify_wavelength(wavelength_m)

    def _verify_wavelength(self, wavelength_m: float) -> None:
        wanted = m_to_nm(wavelength_m)
        actual = m_to_nm(self.wavelength.get())
        if abs(actual - wanted) > _WAVELENGTH_TOLERANCE_NM:
            raise self._not_applied("wavelength", f"{actual:.3f}", f"{wanted:.3f}", "nm")

    def _set_averaging_time(self, seconds: float) -> None:
        wanted = self._check_averaging_time(seconds)
        if abs(1e3 * seconds - wanted) > 1e-6:
            raise LimitError(
                f"{self.name}: the averaging time cannot be {seconds} s; it has steps of 10 us. Nothing was changed"
            )
        with self._live_link().lock:
            self._write_checked(f"AVG {wanted:.2f}")
            self._verify_averaging_time(wanted)

    def _verify_averaging_time(self, wanted_ms: float) -> None:
        actual = 1e3 * self.averaging_time.get()
        if abs(actual - wanted_ms) > 0.5 * _AVERAGING_STEP_MS:
            raise self._not_applied("averaging time", f"{actual:.2f}", f"{wanted_ms:.2f}", "ms")

    def _explain_error(self, code: int, text: str) -> str:
        return f"{code} {text} ({ERRORS[code]})" if code in ERRORS else f"{code} {text}"

    def _is_driven(self) -> bool:
        return False

    def _identify(self) -> None:
        self._check_identity(self.address, ("SANTEC",), _MODEL)
        link = self._live_link()
        slots = link.query("IDIS?", parse_slots)
        modules = {slot: link.query(f"MMVER? {slot}", parse_identity) for slot in slots}
        if len(modules) != self._expected_modules or self._modules not in ({}, modules):
            raise IdentityError(
                f"{self.name} at {self.address}: the mainframe has "
                f"{', '.join(f'{module} in slot {slot}' for slot, module in modules.items()) or 'no modules'}, but "
                f"{self._expected_modules} modules {'as before ' if self._modules else ''}are expected; correct the "
                f"number of modules"
            )
        if not self._modules:
            self._port_counts = {slot: self._count_ports(slot, module) for slot, module in modules.items()}
        self._modules = modules

    def _count_ports(self, slot: int, module: Identity) -> int:
        known = _PORTS.get(module.model)
        if known is not None:
            return known
        link = self._live_link()
        averaging_ms = link.query("AVG?", parse_number)
        return len(link.query(f"READ? {slot}", parse_ports, extra_time=1e-3 * averaging_ms))

    def _settings(self) -> tuple[Parameter, ...]:
        return (self.IDN, self.wavelength, self.averaging_time, self.auto_range, self.range_level)

    def _snapshot_complete(self) -> bool:
        return all(parameter.cache.valid for parameter in self._settings())

    def _refresh(self) -> None:
        for parameter in self._settings():
            parameter.get()
