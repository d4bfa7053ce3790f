"""Optics without I/O: couplers, MZIs, meshes, heaters and the differentiable chip."""

from optinc_hw.photonics._decompose import decompose
from optinc_hw.photonics._mesh import MeshImperfections, MeshPhases, mesh_matrix
from optinc_hw.photonics._mzi import coupler_matrix, mzi_matrix
from optinc_hw.photonics._unitary import fidelity, haar_unitary, nearest_unitary
from optinc_hw.photonics.layout import ChipLayout, RectangularLayout

from optinc_hw.photonics.chip_model import ChipElements, ChipModel
from optinc_hw.photonics.twin import TwinParameters
