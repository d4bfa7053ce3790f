"""Energy of an all-reduce: transceivers, switches, and what optical networks draw whether light passes or not."""

import math
from dataclasses import dataclass, fields

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect._fabrics import SwitchTree
from optinc_hw.interconnect._schedule import PhaseFacts, Schedule
from optinc_hw.interconnect.comparison._checks import check_not_negative, check_positive
from optinc_hw.interconnect.comparison._optics import MeshLoss, NetworkDesign


@dataclass(frozen=True)
class EnergyParameters:
    """Energies and powers.  Defaults are assumptions, to be replaced by those of your parts.

    Parameters
    ----------
    transceiver_J_per_bit
        Of a bit sent by one transceiver and received by another.  Two modules of 16 W move 800 Gb/s in each direction:
        20 pJ; lasers are part of it.
    switch_J_per_bit
        Of a bit that enters a packet switch: 1 kW at 51.2 Tb/s, without modules, is 20 pJ.
    circuit_W
        Of a port of optical circuit switches, while it holds: 0.1 W.
    heater_W
        Mean of a heater: its power for a phase of pi, if phases are spread over 0 .. 2 pi
        (20 mW: nominal heater of `optinc_hw.photonics`).
    heaters_per_mzi
        Heaters of an MZI.
    carrier_W
        Of the laser of one lane into an optical network: 10 mW of light at 10 % efficiency.
    gain_W
        Of a gain stage on one waveguide: 0.15 W, an amplifier of 100 mA with its share of cooling.
    lane_bps
        What one PAM4 lane carries; a network serves M lanes, so faster links need several networks.
    """

    transceiver_J_per_bit: float = 20e-12  # noqa: N815 - joules
    switch_J_per_bit: float = 20e-12  # noqa: N815
    circuit_W: float = 0.1  # noqa: N815 - watts
    heater_W: float = 0.020  # noqa: N815
    heaters_per_mzi: int = 2
    carrier_W: float = 0.1  # noqa: N815
    gain_W: float = 0.15  # noqa: N815
    lane_bps: float = 100e9

    def __post_init__(self) -> None:
        for field in fields(self):
            check = check_positive if field.name == "lane_bps" else check_not_negative
            check(f"{field.name} of energies", getattr(self, field.name))


@dataclass(frozen=True)
class OpticalPower:
    """What all optical networks of a system draw all the time, in W.

    Parameters
    ----------
    networks
        How many there are.
    heaters_W, carriers_W, gain_W
        Of all of them.
    """

    networks: int
    heaters_W: float  # noqa: N815 - watts
    carriers_W: float  # noqa: N815
    gain_W: float  # noqa: N815

    @property
    def total_W(self) -> float:  # noqa: N802
        """Sum in W."""
        return self.heaters_W + self.carriers_W + self.gain_W


@dataclass(frozen=True)
class Energy:
    """Energy of all servers together.

    Parameters
    ----------
    transceivers_J, switches_J
        Of one all-reduce.
    standing_W
        Drawn all the time: heaters, carriers, gain, circuit switches.
    """

    transceivers_J: float  # noqa: N815 - joules
    switches_J: float  # noqa: N815
    standing_W: float  # noqa: N815

    def of(self, seconds: float) -> float:
        """Return J of one all-reduce and of so long a time, such as that of the all-reduce or of the step."""
        return self.transceivers_J + self.switches_J + self.standing_W * seconds


def optical_power(
    schedule: Schedule, rate_bps: float, design: NetworkDesign, parameters: EnergyParameters, loss: MeshLoss
) -> OpticalPower:
    """Return what the optical networks of a schedule draw.

    A server's link of ``rate_bps`` is cut into lanes; a network serves M of them, so that each place of the tree needs
    rate / (M x lane) networks.

    Raises
    ------
    ComparisonError
        If the networks have fewer inputs than the tree has children.
    """
    fan_in = _fan_in(schedule)
    if fan_in > design.servers:
        raise ComparisonError(
            f"{schedule.name} needs networks of {fan_in} inputs, {design.name} has {design.servers}; cascade them"
        )
    copies = math.ceil(rate_bps / (design.symbols * parameters.lane_bps) - 1e-9)
    networks = schedule.switches * copies
    return OpticalPower(
        networks=networks,
        heaters_W=networks * design.mzis * parameters.heaters_per_mzi * parameters.heater_W,
        carriers_W=networks * design.passes * design.sizes[0] * parameters.carrier_W,
        gain_W=networks * _stage_modes(design, loss) * parameters.gain_W,
    )


def all_reduce_energy(
    schedule: Schedule, payload_bytes: float, parameters: EnergyParameters, optics: OpticalPower | None = None,
    *, electrical: bool,
) -> Energy:  # fmt: skip
    """Return the energy of an all-reduce.

    Every transfer costs a pair of transceivers, and one more for each node that regenerates it.  Light crosses an
    optical network without any, so that way up and way down are one pair.  Bits that enter packet switches cost their
    share; additions in servers are left out.

    Parameters
    ----------
    schedule, payload_bytes
        What is sent.
    parameters
        Energies.
    optics
        Power of optical networks, for `optinc` schedules.
    electrical
        Whether transfers pass packet switches: one for each transfer on a crossbar, as between neighbours in a rack.
    """
    hops = sum(phase.steps * int(phase.count @ (phase.circuits.relays + 1)) for phase in schedule.phases)
    sent = 8.0 * payload_bytes * hops / schedule.chunks
    tree = isinstance(schedule.fabric, SwitchTree)
    if optics is not None:
        ends = 8.0 * payload_bytes * schedule.nodes
        return Energy(ends * parameters.transceiver_J_per_bit, 0.0, optics.total_W)
    if not electrical:
        held = schedule.nodes * max(fact.channels for fact in schedule.facts)
        return Energy(sent * parameters.transceiver_J_per_bit, 0.0, held * parameters.circuit_W)
    crossed = sent if tree else 2.0 * sent  # a packet goes from a server to a switch, and from it to a server
    entering = _into_switches(schedule.facts) * 8.0 * payload_bytes if tree else sent
    return Energy(crossed * parameters.transceiver_J_per_bit, entering * parameters.switch_J_per_bit, 0.0)


def _into_switches(facts: tuple[PhaseFacts, ...]) -> float:
    """Sum over the transfers that end in a switch: all on the way up, and all but the last level on the way down."""
    return sum(float(fact.sent) for fact in facts) - float(facts[-1].sent)


def _fan_in(schedule: Schedule) -> int:
    return max(int(fact.reduced / fact.share) for fact in schedule.facts)


def _stage_modes(design: NetworkDesign, loss: MeshLoss) -> float:
    """Waveguides times gain stages, the stages spread evenly over the layers."""
    layers = len(design.sizes) - 1
    return loss.gain_stages(design) * design.modes / layers
