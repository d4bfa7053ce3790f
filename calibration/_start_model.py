"""A small model of a bare mesh for its start: equal couplers, no loss, no crosstalk."""

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from optinc_hw.photonics.mesh_layout import MeshLayout

Complex = NDArray[np.complex128]
Single = NDArray[np.float32]


class StartModel:
    """Fields and powers of a mesh of equal couplers without loss.

    Parameters
    ----------
    mesh
        The mesh.
    eta
        Splitting angle of all couplers, rad.
    """

    def __init__(self, mesh: MeshLayout, eta: float) -> None:
        self.mesh = mesh
        self._cells = [np.array(cells, dtype=np.intp) for cells in mesh.columns]
        self._cosine, self._sine = np.cos(eta), 1j * np.sin(eta)

    def entries(self, theta: Array, phi: Array) -> tuple[Complex, Complex, Complex, Complex]:
        """Elements of the MZIs' matrices, row by row."""
        inner, outer = np.exp(1j * theta), np.exp(1j * phi)
        c, s = self._cosine, self._sine
        off = c * s * (inner + 1.0)
        return (c * c * inner + s * s) * outer, off, off * outer, s * s * inner + c * c

    def fields(self, theta: Array, phi: Array, lit: NDArray[np.intp], before: int | None = None) -> Complex:
        """Fields (B, n) behind the mesh, or before a column, at phases (B, K) in rad."""
        fields = np.zeros((len(lit), self.mesh.ports), dtype=np.complex128)
        fields[np.arange(len(lit)), lit] = 1.0
        matrix = self.entries(theta, phi)
        for cells in self._cells[:before]:
            fields = self._through(matrix, cells, fields)
        return fields

    def _through(self, matrix: tuple[Complex, ...], cells: NDArray[np.intp], fields: Complex) -> Complex:
        upper = self.mesh.modes[cells]
        first, second, after = fields[:, upper], fields[:, upper + 1], fields.copy()
        after[:, upper] = matrix[0][:, cells] * first + matrix[1][:, cells] * second
        after[:, upper + 1] = matrix[2][:, cells] * first + matrix[3][:, cells] * second
        return after

    def slopes(
        self, theta: Array, phi: Array, lit: NDArray[np.intp], first: int = 0
    ) -> tuple[Single, Single, Single, Single]:
        """Powers and what changes them, from a column on, to six digits.

        Returns
        -------
        tuple
            Powers (B, n); their derivatives (2K, B, n) by all thetas, then all phis; those by the phases of the lower
            arms (2K, B, n), internal ones first; power (B, n) that comes to each output from one rad^2 on every arm,
            each by itself, beyond what it loses. What stands before column ``first`` is left out of all but the powers.
        """
        matrix = [part.T[:, :, None].astype(np.complex64) for part in self.entries(theta, phi)]
        inner, outer = (np.exp(1j * phase).T[:, :, None].astype(np.complex64) for phase in (theta, phi))
        count, ports, batch = len(self.mesh.mzis), self.mesh.ports, len(lit)
        fields = np.zeros((ports, batch, 1), dtype=np.complex64)
        fields[lit, np.arange(batch)] = 1.0
        entered = []
        for cells in self._cells:
            entered.append(fields)
            upper, fields = self.mesh.modes[cells], fields.copy()
            one, two = fields[upper], fields[upper + 1]
            fields[upper] = matrix[0][cells] * one + matrix[1][cells] * two
            fields[upper + 1] = matrix[2][cells] * one + matrix[3][cells] * two
        own, below = np.zeros((2, 2 * count, batch, ports), dtype=np.float32)
        powers = np.abs(fields[:, :, 0].T) ** 2
        scattered = np.zeros((batch, ports), dtype=np.float32)
        cosine, sine = np.complex64(self._cosine), np.complex64(self._sine)
        twice = 2.0 * np.conj(fields[:, :, 0]).T
        # Rows of what is behind.
        behind = np.tile(np.eye(ports, dtype=np.complex64)[:, None], (1, batch, 1))
        for column in reversed(range(first, self.mesh.depth)):
            cells = self._cells[column]
            upper = self.mesh.modes[cells]
            one, two = entered[column][upper], entered[column][upper + 1]
            to_upper, to_lower = behind[upper], behind[upper + 1]
            above = cosine * outer[cells] * one + sine * two, cosine * to_upper + sine * to_lower
            beneath = sine * outer[cells] * one + cosine * two, sine * to_upper + cosine * to_lower
            own[cells] = (above[1] * (1j * inner[cells] * above[0] * twice)).real
            below[cells] = (beneath[1] * (1j * beneath[0] * twice)).real
            through = to_upper * matrix[0][cells] + to_lower * matrix[2][cells]
            passed = to_upper * matrix[1][cells] + to_lower * matrix[3][cells]
            own[count + cells] = (through * (1j * one * twice)).real
            below[count + cells] = (passed * (1j * two * twice)).real
            beside = np.ones(ports, dtype=np.bool_)
            beside[upper] = beside[upper + 1] = False
            outside = np.sum(_square(behind[beside]) * _square(entered[column][beside]), axis=0) - powers
            within = np.sum(_square(above[1]) * _square(above[0]) + _square(beneath[1]) * _square(beneath[0]), axis=0)
            before = np.sum(_square(through) * _square(one) + _square(passed) * _square(two), axis=0)
            # A phase that all arms share scatters nothing.
            scattered += 2.0 * outside + within + before
            behind[upper], behind[upper + 1] = through, passed
        return powers, own, below, scattered


def _square(values: NDArray[np.complex64]) -> Single:
    return np.asarray(values.real**2 + values.imag**2)
