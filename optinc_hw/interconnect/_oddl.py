"""ODDL: circuits made for each flow, on a network carved out for one job."""

from typing import Literal

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect._fabrics import Crossbar
from optinc_hw.interconnect._layout import Layout
from optinc_hw.interconnect._rings import ring
from optinc_hw.interconnect._schedule import Schedule
from optinc_hw.interconnect._trees import lay_halving_doubling

Collective = Literal["ring", "halving-doubling"]


def oddl(nodes: int, transceivers: int = 2, *, collective: Collective = "halving-doubling") -> Schedule:
    """All-reduce on an all-optical network with flow scheduling (ODDL; JOCN 16, 342, 2024).

    The slow plane of wavelength-selective switches carves a network of `nodes` servers out once a job (see
    `job_setup_time`); in it the fast plane of tunable transceivers makes a circuit for every flow.  Ports,
    guard times and the collective are not published: what is built here is a reconstruction.

    Parameters
    ----------
    nodes
        Servers N of the job, at least 2.
    transceivers
        Tunable ones of each server.  With two or more, successive steps take them in turn, so that one can tune while
        another sends (``overlap`` of `step_time` and `simulate`).
    collective
        ``"halving-doubling"``: few steps, new circuits in each.  ``"ring"``: many steps on circuits that stay.

    Raises
    ------
    ScheduleError
        If the collective is unknown.
    """
    fabric = Crossbar(transceivers, carved=True)
    if collective == "ring":
        made = ring(nodes, fabric)
        return Schedule("ODDL ring", made.nodes, made.chunks, fabric, made.phases, made.channels_needed)
    if collective != "halving-doubling":
        raise ScheduleError(f"collective must be 'ring' or 'halving-doubling', got {collective!r}")
    layout = Layout("ODDL halving-doubling", nodes, fabric)
    return layout.schedule(lay_halving_doubling(layout, lanes=fabric.transceivers))
