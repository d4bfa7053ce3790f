"""Is it worth it?  Training jobs, energy, link budgets, and schedules side by side (`optinc compare`)."""

from optinc_hw.interconnect.comparison._compare import Comparison, Row, compare
from optinc_hw.interconnect.comparison._energy import (
    Energy,
    EnergyParameters,
    OpticalPower,
    all_reduce_energy,
    optical_power,
)
from optinc_hw.interconnect.comparison._figures import plot_energy, plot_shares, plot_times, plot_winners
from optinc_hw.interconnect.comparison._optics import LinkBudget, MeshLoss, NetworkDesign, splitting_loss_db
from optinc_hw.interconnect.comparison._payloads import Range, crossover, fastest_ranges
from optinc_hw.interconnect.comparison._systems import Network, System, build_systems, system_names
from optinc_hw.interconnect.comparison._training import Server, Training, TrainingStep, training_step
from optinc_hw.interconnect.comparison._workloads import (
    Workload,
    count_parameters,
    find_workload,
    load_module,
    measure_workload,
    transformer,
    workloads,
)

__all__ = [
    "Comparison",
    "Energy",
    "EnergyParameters",
    "LinkBudget",
    "MeshLoss",
    "Network",
    "NetworkDesign",
    "OpticalPower",
    "Range",
    "Row",
    "Server",
    "System",
    "Training",
    "TrainingStep",
    "Workload",
    "all_reduce_energy",
    "build_systems",
    "compare",
    "count_parameters",
    "crossover",
    "fastest_ranges",
    "find_workload",
    "load_module",
    "measure_workload",
    "optical_power",
    "plot_energy",
    "plot_shares",
    "plot_times",
    "plot_winners",
    "splitting_loss_db",
    "system_names",
    "training_step",
    "transformer",
    "workloads",
]
