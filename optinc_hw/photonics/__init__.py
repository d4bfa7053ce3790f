"""Optics without I/O: couplers, MZIs, meshes, heaters and the differentiable chip."""

from optinc_hw.photonics._decompose import Decomposition, decompose
from optinc_hw.photonics._mesh import MeshImperfections, MeshPhases, PhasePlacement
from optinc_hw.photonics._mesh_plan import LimitingMzi
from optinc_hw.photonics._mzi import coupler_matrix, mzi_matrix
from optinc_hw.photonics._transfer import mesh_matrix
from optinc_hw.photonics._unitary import fidelity, haar_unitary, nearest_unitary
from optinc_hw.photonics.chip_model import ChipElements, ChipModel
from optinc_hw.photonics.heater_model import CouplerDispersion, HeaterModel
from optinc_hw.photonics.heater_solution import HeaterSolution, solve_heaters
from optinc_hw.photonics.heaters import power_from_voltage, solve_powers, voltage_from_power
from optinc_hw.photonics.layout import ChipLayout
from optinc_hw.photonics.mesh_layout import MeshLayout, RectangularLayout, TriangularLayout
from optinc_hw.photonics.mesh_model import MeshModel
from optinc_hw.photonics.placement import convert_phases
from optinc_hw.photonics.program import ProgrammedMatrix, program_matrix
from optinc_hw.photonics.program_mesh import MeshProgram, program_mesh
from optinc_hw.photonics.program_unitary import ProgrammedUnitary, program_unitary
from optinc_hw.photonics.realise import (
    BlockRealisation,
    Realisation,
    RealPartRealisation,
    SvdRealisation,
    mzi_count,
    realise,
)
from optinc_hw.photonics.twin import TwinParameters

__all__ = [
    "BlockRealisation",
    "ChipElements",
    "ChipLayout",
    "ChipModel",
    "CouplerDispersion",
    "Decomposition",
    "HeaterModel",
    "HeaterSolution",
    "LimitingMzi",
    "MeshImperfections",
    "MeshLayout",
    "MeshModel",
    "MeshPhases",
    "MeshProgram",
    "PhasePlacement",
    "ProgrammedMatrix",
    "ProgrammedUnitary",
    "RealPartRealisation",
    "Realisation",
    "RectangularLayout",
    "SvdRealisation",
    "TriangularLayout",
    "TwinParameters",
    "convert_phases",
    "coupler_matrix",
    "decompose",
    "fidelity",
    "haar_unitary",
    "mesh_matrix",
    "mzi_count",
    "mzi_matrix",
    "nearest_unitary",
    "power_from_voltage",
    "program_matrix",
    "program_mesh",
    "program_unitary",
    "realise",
    "solve_heaters",
    "solve_powers",
    "voltage_from_power",
]
