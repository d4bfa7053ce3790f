"""Faults that are no single bad exchange: who answers, who is let in, and what is wrong on the chip."""

from fault_exchanges import ERROR, FLAGGED, HASTY_S, PATIENT_S, RIGHT, WRONG

from optinc_hw.errors import OptincError
from simulated_instruments.faults import (
    DeadDetector,
    DriftingHeater,
    ModeHop,
    OffsetDetector,
    OpenHeater,
    PowerDrop,
    Refused,
    SaturatedDetector,
    ShortedHeater,
    WrongIdentity,
)


def wrong_identity(rig):
    """Somebody else answers after a reconnection."""
    rig.faults.inject("device", WrongIdentity(b"ACME,Toaster,0,1.0"), count=None)
    return _not_let_in(rig)


def refused(rig):
    """Connections are refused for a while."""
    rig.faults.drop("device")
    rig.faults.inject("device", Refused(), count=2)
    return _not_let_in(rig)


def swapped(rig):
    """The plugs of two instruments are swapped for a while."""
    rig.faults.swap("device", "other")
    outcome = _not_let_in(rig)
    rig.faults.swap("device", "other")
    return outcome


def _not_let_in(rig):
    """Reconnect and set something: both must raise."""
    rig.device.timeout(HASTY_S)
    for action in (rig.device.reconnect, lambda: rig.exchanges.put(1)):
        try:
            action()
        except OptincError:
            continue
        return WRONG
    return ERROR


def _on_chip(make):
    """Make a situation in which the chip has a fault; what is read must be what it is with this fault."""

    def situation(rig):
        rig.faults.inject_on_chip(make(rig.chip.layout))
        rig.clock.sleep(2.0)
        worst = RIGHT
        for step in (rig.exchanges.read, lambda: rig.exchanges.put(1), rig.exchanges.read):
            try:
                outcome = step()
            except OptincError:
                outcome = ERROR
            worst = max(worst, outcome, key=(RIGHT, FLAGGED, ERROR, WRONG).index)
        return worst

    return situation


BETWEEN = {"wrong identity": wrong_identity, "connections refused": refused, "plugs swapped": swapped}
ON_CHIP = {
    "heaters": {
        "heater open": _on_chip(lambda layout: OpenHeater(layout.heaters[0])),
        "heater shorted": _on_chip(lambda layout: ShortedHeater(layout.heaters[0])),
        "heater drifting": _on_chip(lambda layout: DriftingHeater(layout.heaters[0], per_s=0.05)),
    },
    "meter": {
        "detector dead": _on_chip(lambda layout: DeadDetector(layout.detectors[0])),
        "detector saturated": _on_chip(lambda layout: SaturatedDetector(layout.detectors[0])),
        "detector with offset": _on_chip(lambda layout: OffsetDetector(layout.detectors[0], 3e-6)),
        "laser mode hop": _on_chip(lambda layout: ModeHop(2e-9)),
        "laser power drop": _on_chip(lambda layout: PowerDrop(0.5)),
    },
}
ALL_NAMES = (*BETWEEN, *ON_CHIP["heaters"], *ON_CHIP["meter"])


def situations_of(role):
    """Every situation that an instrument of this role can be in, by name."""
    return BETWEEN | ON_CHIP.get(role, {})


def live_through(rig, situation):
    """Let a situation pass; tell its outcome, and what is not right afterwards."""
    rig.prepare()
    outcome = situation(rig)
    rig.faults.clear()
    rig.device.timeout(PATIENT_S)
    try:
        if rig.device._link.broken:
            rig.device.reconnect()
        if rig.case.role == "heaters":
            rig.device.read_currents()  # limits go by the resistance that was measured last
        rest = [step() for step in (rig.exchanges.read, lambda: rig.exchanges.put(0), rig.exchanges.read)]
    except OptincError as error:
        return outcome, f"{type(error).__name__}: {error}"
    return outcome, "" if rest == [RIGHT] * 3 else f"next exchanges {rest}"
