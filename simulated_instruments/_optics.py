"""Light through the hidden chip, arm by arm; written apart from the twin so that each can be tested by the other."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._effects import HiddenEffects
from simulated_instruments._geometry import ArmSections
from simulated_instruments._parameters import FloatArray, HiddenParameters
from simulated_instruments._phases import SectionPhases

ComplexArray = NDArray[np.complex128]


class _Mzis:
    """Static coefficients of a set of MZIs, indexed by their output arm.

    With ``t`` the phase factors between the couplers, ``f`` those before the first coupler, and a prime for the
    partner arm, an arm's row of the MZI's matrix is ``(own_own t + own_other t') f`` and
    ``(cross_own t + cross_other t') f'``; the formula is the same for upper and lower arms.
    """

    def __init__(self, eta_in: FloatArray, eta_out: FloatArray, amplitude: FloatArray) -> None:
        self.own_own = amplitude * np.cos(eta_out) * np.cos(eta_in)
        self.own_other = -amplitude * np.sin(eta_out) * np.sin(eta_in)
        self.cross_own = 1j * amplitude * np.cos(eta_out) * np.sin(eta_in)
        self.cross_other = 1j * amplitude * np.sin(eta_out) * np.cos(eta_in)


@dataclass(frozen=True)
class _Couplers:
    """Static coefficients of all MZIs at one wavelength."""

    modulators: _Mzis
    mesh: _Mzis
    attenuators: _Mzis


@dataclass(frozen=True)
class Transmission:
    """What the chip does to light at one heat and one wavelength.

    Parameters
    ----------
    own, cross
        (columns, n) factors of each mode's own field and of its partner's in each mesh column.
    partner
        (columns, n) the other mode of the MZI, or the mode itself beside the MZIs.
    before, behind
        Factors (n,) of the fields before and behind the mesh, in the order of the light; the first is the splitter's
        share with the input's transmission.
    oscillator
        Field (n,) of the local oscillator at each receiver per sqrt(W) of the laser; empty with power detectors.
    receiver_cos, receiver_isin
        Coefficients (n,) of the receivers' couplers.
    """

    own: ComplexArray
    cross: ComplexArray
    partner: NDArray[np.intp]
    before: tuple[FloatArray | ComplexArray, ...]
    behind: tuple[FloatArray | ComplexArray, ...]
    oscillator: ComplexArray
    receiver_cos: FloatArray
    receiver_isin: ComplexArray

    def matrix(self, input_amplitude: FloatArray) -> ComplexArray:
        """Return the fields (n, n) at the receivers per field at each input, with what (n,) the inputs let through."""
        columns = [self._through((input_amplitude, *self.before[1:]), one) for one in np.eye(len(input_amplitude))]
        return np.stack(columns, axis=1)

    def powers(self, entering: ComplexArray) -> FloatArray:
        """Return the powers (D,) on the photodiodes per W of the laser, for fields (n,) per sqrt(W) at the inputs."""
        outputs = self._through(self.before, entering)
        if len(self.oscillator):
            plus = self.receiver_cos * outputs + self.receiver_isin * self.oscillator
            minus = self.receiver_isin * outputs + self.receiver_cos * self.oscillator
            outputs = np.concatenate([plus, minus])
        powers: FloatArray = outputs.real**2 + outputs.imag**2
        return powers

    def _through(
        self, before: tuple[FloatArray | ComplexArray, ...], entering: FloatArray | ComplexArray
    ) -> ComplexArray:
        """Return the signal fields (n,) at the receivers for fields (n,) at the inputs."""
        field = entering
        for factor in before:
            field = field * factor
        for own, cross, partner in zip(self.own, self.cross, self.partner, strict=True):
            field = own * field + cross * field[partner]
        for factor in self.behind:
            field = field * factor
        return np.asarray(field, dtype=np.complex128)


class ChipOptics:
    """Transmission of a hidden chip for given heat; all coefficients that never change are prepared here."""

    def __init__(self, layout: ChipLayout, effects: HiddenEffects, parameters: HiddenParameters) -> None:
        n, grid = layout.ports, (layout.mesh.depth, layout.ports)
        self._layout, self._effects, self._parameters = layout, effects, parameters
        self._blocks = ArmSections(layout).blocks
        self._grid = grid
        self._phases = SectionPhases(layout, effects, parameters)
        self._exponent: ComplexArray = np.log(parameters.section_amplitude).astype(np.complex128)
        share = effects.lo_fraction if layout.homodynes else 0.0
        split = n if layout.modulators else 1
        self._input_field = math.sqrt((1.0 - share) / split) * parameters.input_amplitude
        self._lo_field = math.sqrt(share / n) * np.exp(1j * parameters.lo_phase_rad)
        self._receiver_cos = np.cos(parameters.receiver_eta_rad)
        self._receiver_isin = 1j * np.sin(parameters.receiver_eta_rad)
        self._couplers_at = (effects.design_wavelength_m, self._couplers(0.0))
        self._partner = np.tile(np.arange(n), (grid[0], 1))
        for column, mode in layout.mesh.mzis:
            self._partner[column, mode : mode + 2] = (mode + 1, mode)
        self._flat_partner = self._partner + n * np.arange(grid[0])[:, None]

    def transmission(self, heat_w: FloatArray, wavelength_m: float) -> Transmission:
        """Return what the chip does to light.

        Parameters
        ----------
        heat_w
            (H,) heat in W that each heater gives off.
        wavelength_m
            Wavelength in m.
        """
        exponent = self._exponent.copy()
        exponent.imag = self._phases(heat_w, self._effects.design_wavelength_m / wavelength_m)
        factor, blocks = np.exp(exponent), self._blocks
        couplers = self._couplers_for(wavelength_m)
        own, cross = self._mesh(couplers.mesh, factor[blocks["mesh_external"]], factor[blocks["mesh_internal"]])
        before: tuple[FloatArray | ComplexArray, ...] = (self._input_field,)
        if self._layout.modulators:
            modulated = _through(couplers.modulators, factor[blocks["input_internal"]])
            before = (self._input_field, factor[blocks["input_external"]], modulated)
        behind: tuple[FloatArray | ComplexArray, ...] = (self._parameters.output_amplitude,)
        if self._layout.homodynes:
            attenuated = _through(couplers.attenuators, factor[blocks["attenuator"]])
            behind = (factor[blocks["output"]], attenuated, self._parameters.output_amplitude)
        return Transmission(
            own=own,
            cross=cross,
            partner=self._partner,
            before=before,
            behind=behind,
            oscillator=self._lo_field * factor[blocks["lo"]],
            receiver_cos=self._receiver_cos,
            receiver_isin=self._receiver_isin,
        )

    def _mesh(self, mesh: _Mzis, external: ComplexArray, internal: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        before, before_partner = external.reshape(self._grid), external[self._flat_partner]
        inside, inside_partner = internal.reshape(self._grid), internal[self._flat_partner]
        own = (mesh.own_own * inside + mesh.own_other * inside_partner) * before
        cross = (mesh.cross_own * inside + mesh.cross_other * inside_partner) * before_partner
        return own, cross

    def _couplers_for(self, wavelength_m: float) -> _Couplers:
        if self._effects.coupler_dispersion_rad_per_nm != 0.0 and wavelength_m != self._couplers_at[0]:
            off_nm = (wavelength_m - self._effects.design_wavelength_m) * 1e9
            self._couplers_at = wavelength_m, self._couplers(self._effects.coupler_dispersion_rad_per_nm * off_nm)
        return self._couplers_at[1]

    def _couplers(self, turned_rad: float) -> _Couplers:
        """Coefficients of MZIs whose splitting angles are ``turned_rad`` above those at the design wavelength."""
        layout, p = self._layout, self._parameters
        first, last = layout.modulators, layout.modulators + len(layout.mesh.mzis)
        eta_in, eta_out, amplitude = p.eta_in_rad + turned_rad, p.eta_out_rad + turned_rad, p.mzi_amplitude
        # A mode that passes beside the MZIs of a column is its own partner behind couplers that do not couple.
        grid_in, grid_out, grid_amplitude = np.zeros(self._grid), np.zeros(self._grid), np.ones(self._grid)
        for k, (column, mode) in enumerate(layout.mesh.mzis, start=first):
            arms = slice(mode, mode + 2)
            grid_in[column, arms] = eta_in[k]
            grid_out[column, arms] = eta_out[k]
            grid_amplitude[column, arms] = amplitude[k]
        return _Couplers(
            _Mzis(eta_in[:first], eta_out[:first], amplitude[:first]),
            _Mzis(grid_in, grid_out, grid_amplitude),
            _Mzis(eta_in[last:], eta_out[last:], amplitude[last:]),
        )


def _through(mzis: _Mzis, internal: ComplexArray) -> ComplexArray:
    """Field transmission (n,) from upper input to upper output for (2n,) internal phase factors."""
    result: ComplexArray = mzis.own_own * internal[0::2] + mzis.own_other * internal[1::2]
    return result
