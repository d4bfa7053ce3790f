"""Loads the station's instruments, checks who answers, and arms their limits; changes no output."""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from optinc_hw.bench.description import BenchDescription
from optinc_hw.bench.station_file import STATION_FILE
from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError, IdentityError, LinkError, OptincError

if TYPE_CHECKING:
    from qcodes.instrument import Instrument
    from qcodes.station import Station

    from drivers.protocols import HeaterBank, Laser, PowerMeter, Switch

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Connected:
    """Instruments of an open bench."""

    station: "Station"
    meters: "Mapping[str, PowerMeter]"
    laser_name: str
    laser: "Laser"
    heaters: "Mapping[str, HeaterBank]"
    switches: "Mapping[str, Switch]"


def connect(
    description: BenchDescription, clock: Clock, addresses: Mapping[str, str] | None, stack: ExitStack
) -> Connected:
    """Connect all instruments that chip.yaml uses: meters, switches, then the laser, heater drivers last.

    Parameters
    ----------
    description
        Checked bench folder.
    clock
        Clock that drivers use for ramps and waiting.
    addresses
        Addresses of simulated instruments that replace those of station.yaml; None for the real ones.
    stack
        Gets a callback that closes each instrument; also after a failure part way.

    Raises
    ------
    ConfigurationError
        If a name is in use by another open instrument, or the driver refuses its arguments.
    LinkError, IdentityError
        If an instrument does not answer, or is not the one that the files describe.
    """
    from qcodes.station import Station

    path = description.folder / STATION_FILE
    station = Station(config_file=str(path), default=False, use_monitor=False)
    opened: dict[str, Any] = {}  # Any: QCoDeS instruments, typed by role below
    for name in description.roles:
        instrument = _load(station, description, name, addresses)
        stack.callback(instrument.close)
        cast("Any", instrument).clock = clock
        if addresses is None:
            _check_serial_number(description, name, instrument, path)
        opened[name] = instrument
    heaters = {name: opened[name] for name in description.heater_attachments}
    meters = {name: opened[name] for name in description.detector_attachments}
    for name, bank in heaters.items():
        _check_size(name, int(description.heater_attachments[name].channels.max()), bank.channel_count, "channel", path)
        _arm(description, name, bank)
    for name, meter in meters.items():
        _check_size(name, int(description.detector_attachments[name].channels.max()), meter.port_count, "port", path)
    laser_name = description.chip.laser.instrument
    switches = {name: opened[name] for name, role in description.roles.items() if role == "switch"}
    behind = (entry.switch for entry in description.chip.detectors.values())
    for way in (*behind, *description.input_ways.values()):
        if way is not None:
            switch = switches[way.instrument]
            _check_size(way.instrument, way.input, switch.input_count, "input", path)
            _check_size(way.instrument, way.output, switch.output_count, "output", path)
    return Connected(station, meters, laser_name, opened[laser_name], heaters, switches)


def _load(
    station: "Station", description: BenchDescription, name: str, addresses: Mapping[str, str] | None
) -> "Instrument":
    from qcodes.instrument import Instrument

    path = description.folder / STATION_FILE
    entry = description.station.instruments[name]
    if Instrument.exist(name) and not entry.enable_forced_reconnect:
        raise ConfigurationError(
            f"{path}: instruments.{name}: an instrument of this name is already open in this process; close the other "
            f"bench or instrument first, or rename this one in both files"
        )
    override: dict[str, Any] = {} if addresses is None else {"address": addresses[name]}
    address = override.get("address", entry.where)
    try:
        return station.load_instrument(name, update_snapshot=False, **override)
    except LinkError as error:
        if name in str(error):
            raise
        raise LinkError(f"instrument {name!r} of {path}: {error}") from error
    except OptincError:
        raise
    except TypeError as error:
        raise ConfigurationError(
            f"{path}: instruments.{name}.init: driver {entry.type} refuses its arguments ({error}); correct init"
        ) from error
    except Exception as error:
        raise LinkError(
            f"instrument {name!r} at {address!r} ({entry.type}) could not be connected: {error}; check power, cable "
            f"and the address in {path}"
        ) from error


def _check_serial_number(description: BenchDescription, name: str, instrument: "Instrument", path: Path) -> None:
    wanted = description.chip.serial_numbers.get(name)
    if wanted is None:
        return
    found = instrument.get_idn().get("serial")
    if found != wanted:
        raise IdentityError(
            f"instrument {name!r} at {description.station.instruments[name].where!r} has serial number {found!r}, but "
            f"chip.yaml expects {wanted!r}; correct the address in {path} or serial_numbers.{name} in chip.yaml"
        )


def _check_size(name: str, highest: int, size: int, label: str, path: Path) -> None:
    if highest >= size:
        raise IdentityError(
            f"instrument {name!r} has {size} {label}s, but chip.yaml uses {label} {highest} (counted from 0); correct "
            f"the wiring or the address in {path}"
        )


def _arm(description: BenchDescription, name: str, bank: "HeaterBank") -> None:
    """Give the driver the chip's limits and ramp; software only, nothing goes to the instrument."""
    heaters, ramp = description.chip.heaters, description.chip.ramp
    bank.ramp_step, bank.ramp_interval = ramp.step_v, ramp.interval_s
    attachment = description.heater_attachments[name]
    for channel, k in zip(attachment.channels, attachment.elements, strict=True):
        name = description.layout.heaters[k]
        bank.set_channel_limits(
            int(channel),
            max_voltage=heaters.limit(name, "max_voltage_v"),
            max_current=heaters.limit(name, "max_current_a"),
            max_power=heaters.limit(name, "max_power_w"),
        )


def outputs_at_start(description: BenchDescription, heaters: "Mapping[str, HeaterBank]") -> dict[str, float]:
    """Return the measured voltage (V) of each output that is not zero, by heater name.

    An output that no heater of the chip is wired to appears as ``instrument[channel]``.
    """
    found: dict[str, float] = {}
    for name, bank in heaters.items():
        attachment = description.heater_attachments[name]
        wired = dict(zip(attachment.channels.tolist(), attachment.elements.tolist(), strict=True))
        for channel, voltage in bank.nonzero_outputs().items():
            element = wired.get(channel)
            key = f"{name}[{channel}]" if element is None else description.layout.heaters[element]
            found[key] = voltage
    if found:
        shown = ", ".join(f"{key} {voltage:.3g} V" for key, voltage in list(found.items())[:8])
        log.warning(
            "%d heater outputs are not zero at the start (%s%s); nothing was changed; Bench.make_safe() ramps them "
            "to 0 V",
            len(found),
            shown,
            ", ..." if len(found) > 8 else "",
        )
    return found
