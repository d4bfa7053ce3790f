"""The default wiring of a bench: what hangs on what, for bench folders and simulated benches alike."""

from collections.abc import Mapping
from dataclasses import dataclass

from optinc_hw.photonics.layout import ChipLayout

CHANNELS_PER_MODULE = 8
MODULES_PER_CHAIN = 8
PORTS_PER_METER = 8
LASER = "laser"
INPUT_SWITCH = "input_switch"


@dataclass(frozen=True)
class DefaultWiring:
    """Instruments of the default wiring and places on them, all counted from 0.

    Parameters
    ----------
    heater_modules
        Modules of 8 channels of each heater chain.
    meter_ports
        Ports of each power meter.
    switch_channels
        Channels of the optical switch between laser and input ports; empty if the chip has modulators.
    heaters
        (chain, channel) by heater name, in the layout's order.
    detectors
        (meter, port) by detector name, in the layout's order.
    inputs
        (switch, channel) by input port.
    """

    heater_modules: Mapping[str, int]
    meter_ports: Mapping[str, int]
    switch_channels: Mapping[str, int]
    heaters: Mapping[str, tuple[str, int]]
    detectors: Mapping[str, tuple[str, int]]
    inputs: Mapping[int, tuple[str, int]]

    @property
    def instruments(self) -> tuple[str, ...]:
        """Names of all instruments: heater chains, meters, switch, laser."""
        return (*self.heater_modules, *self.meter_ports, *self.switch_channels, LASER)


def default_wiring(layout: ChipLayout) -> DefaultWiring:
    """Wire a chip the default way.

    Heaters in the layout's order on chains ``heaters_0``, ``heaters_1``, ... of at most 8 modules of 8 channels;
    photodiodes on meters of 8 ports: ``meter_plus_0``, ... and ``meter_minus_0``, ... of homodyne receivers,
    ``meter_0``, ... of power detectors; where light enters single ports, the channels of an ``input_switch`` whose
    common port the laser is on; one ``laser``.
    """
    per_chain = CHANNELS_PER_MODULE * MODULES_PER_CHAIN
    heaters = {name: (f"heaters_{k // per_chain}", k % per_chain) for k, name in enumerate(layout.heaters)}
    modules: dict[str, int] = {}
    for chain, channel in heaters.values():
        modules[chain] = max(modules.get(chain, 0), channel // CHANNELS_PER_MODULE + 1)
    detectors = {name: _meter_port(name) for name in layout.detectors}
    lit = range(layout.ports if layout.inputs == "ports" else 0)
    return DefaultWiring(
        heater_modules=modules,
        meter_ports=dict.fromkeys((meter for meter, _ in detectors.values()), PORTS_PER_METER),
        switch_channels={INPUT_SWITCH: len(lit)} if lit else {},
        heaters=heaters,
        detectors=detectors,
        inputs={port: (INPUT_SWITCH, port) for port in lit},
    )


def _meter_port(detector: str) -> tuple[str, int]:
    """Meter and port of the detector ``rx_<j>`` or ``rx_<j>_<side>``."""
    _, output, *side = detector.split("_")
    meter, port = divmod(int(output), PORTS_PER_METER)
    return "_".join(["meter", *side, str(meter)]), port
