"""All-reduce schedules as data, and what they cost: ring, trees, WRHT, ODDL, switches that add, OptINC."""

from optinc_hw.interconnect._check import check_schedule
from optinc_hw.interconnect._fabrics import Crossbar, Fabric, SwitchTree, WdmRing
from optinc_hw.interconnect._links import LinkParameters, job_setup_time, step_time
from optinc_hw.interconnect._oddl import oddl
from optinc_hw.interconnect._rings import hierarchical_ring, ring
from optinc_hw.interconnect._run import run_schedule
from optinc_hw.interconnect._schedule import Circuits, Cycle, Phase, PhaseFacts, Schedule, Step
from optinc_hw.interconnect._simulate import Job, Simulation, simulate, simulate_jobs
from optinc_hw.interconnect._switches import in_switch, optinc
from optinc_hw.interconnect._trees import binary_tree, halving_doubling, recursive_doubling
from optinc_hw.interconnect._wrht import wrht

__all__ = [
    "Circuits",
    "Crossbar",
    "Cycle",
    "Fabric",
    "Job",
    "LinkParameters",
    "Phase",
    "PhaseFacts",
    "Schedule",
    "Simulation",
    "Step",
    "SwitchTree",
    "WdmRing",
    "binary_tree",
    "check_schedule",
    "halving_doubling",
    "hierarchical_ring",
    "in_switch",
    "job_setup_time",
    "oddl",
    "optinc",
    "recursive_doubling",
    "ring",
    "run_schedule",
    "simulate",
    "simulate_jobs",
    "step_time",
    "wrht",
]
