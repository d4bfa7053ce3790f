"""Light through the hidden chip, arm by arm; written apart from the twin so that each can be tested by the other."""

import math

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._effects import HiddenEffects
from simulated_instruments._geometry import ArmSections
from simulated_instruments._parameters import FloatArray, HiddenParameters

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


class ChipOptics:
    """Detector powers of a hidden chip for given heat; all coefficients that never change are prepared here."""

    def __init__(self, layout: ChipLayout, effects: HiddenEffects, parameters: HiddenParameters) -> None:
        n, grid = layout.ports, (layout.mesh.depth, layout.ports)
        sections = ArmSections(layout)
        self._blocks = sections.blocks
        self._grid = grid
        self._offset = parameters.offset_rad
        # The heater of a stuck phase takes current, but its heat reaches no waveguide.
        self._phase_per_watt = parameters.crosstalk * (math.pi / parameters.pi_power_w * layout.movable)
        self._exponent: ComplexArray = np.log(parameters.section_amplitude).astype(np.complex128)
        self._input_field = math.sqrt((1.0 - effects.lo_fraction) / n) * parameters.input_amplitude
        self._lo_field = math.sqrt(effects.lo_fraction / n) * np.exp(1j * parameters.lo_phase_rad)
        self._receiver_cos = np.cos(parameters.receiver_eta_rad)
        self._receiver_isin = 1j * np.sin(parameters.receiver_eta_rad)
        self._output_amplitude = parameters.output_amplitude
        p = parameters
        self._modulators = _Mzis(p.eta_in_rad[:n], p.eta_out_rad[:n], p.mzi_amplitude[:n])
        self._attenuators = _Mzis(p.eta_in_rad[-n:], p.eta_out_rad[-n:], p.mzi_amplitude[-n:])
        # A mode that passes beside the MZIs of a column is its own partner behind couplers that do not couple.
        eta_in, eta_out, amplitude = np.zeros(grid), np.zeros(grid), np.ones(grid)
        self._partner = np.tile(np.arange(n), (grid[0], 1))
        for k, (column, mode) in enumerate(layout.mesh.mzis):
            arms = slice(mode, mode + 2)
            eta_in[column, arms] = p.eta_in_rad[n + k]
            eta_out[column, arms] = p.eta_out_rad[n + k]
            amplitude[column, arms] = p.mzi_amplitude[n + k]
            self._partner[column, arms] = (mode + 1, mode)
        self._mesh = _Mzis(eta_in, eta_out, amplitude)
        self._flat_partner = self._partner + n * np.arange(grid[0])[:, None]

    def unit_powers(self, heat_w: FloatArray, wavelength_ratio: float) -> FloatArray:
        """Return the (2n,) powers on the photodiodes per W of the laser.

        Parameters
        ----------
        heat_w
            (H,) heat in W that each heater gives off.
        wavelength_ratio
            Design wavelength over the laser's.
        """
        factor = self._phase_factors(heat_w, wavelength_ratio)
        blocks = self._blocks
        field = self._input_field * factor[blocks["input_external"]]
        field = field * _through(self._modulators, factor[blocks["input_internal"]])
        field = self._through_mesh(field, factor[blocks["mesh_external"]], factor[blocks["mesh_internal"]])
        field = field * factor[blocks["output"]] * _through(self._attenuators, factor[blocks["attenuator"]])
        field = field * self._output_amplitude
        oscillator = self._lo_field * factor[blocks["lo"]]
        plus = self._receiver_cos * field + self._receiver_isin * oscillator
        minus = self._receiver_isin * field + self._receiver_cos * oscillator
        outputs = np.concatenate([plus, minus])
        powers: FloatArray = outputs.real**2 + outputs.imag**2
        return powers

    def _phase_factors(self, heat_w: FloatArray, wavelength_ratio: float) -> ComplexArray:
        # einsum instead of a BLAS product: at this size BLAS starts threads that cost more than the product.
        phase = np.einsum("sh,h->s", self._phase_per_watt, heat_w * wavelength_ratio)
        exponent = self._exponent.copy()
        exponent.imag = phase + self._offset
        return np.exp(exponent)

    def _through_mesh(self, field: ComplexArray, external: ComplexArray, internal: ComplexArray) -> ComplexArray:
        mesh = self._mesh
        before, before_partner = external.reshape(self._grid), external[self._flat_partner]
        inside, inside_partner = internal.reshape(self._grid), internal[self._flat_partner]
        own = (mesh.own_own * inside + mesh.own_other * inside_partner) * before
        cross = (mesh.cross_own * inside + mesh.cross_other * inside_partner) * before_partner
        for column in range(self._grid[0]):
            field = own[column] * field + cross[column] * field[self._partner[column]]
        return field


def _through(mzis: _Mzis, internal: ComplexArray) -> ComplexArray:
    """Field transmission (n,) from upper input to upper output for (2n,) internal phase factors."""
    result: ComplexArray = mzis.own_own * internal[0::2] + mzis.own_other * internal[1::2]
    return result
