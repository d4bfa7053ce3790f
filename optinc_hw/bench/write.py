"""Writes a bench folder for the default wiring, to be edited by its owner."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypedDict, get_args

from typing_extensions import Unpack

from optinc_hw._files import write_text
from optinc_hw._wiring import LASER, DefaultWiring, default_wiring
from optinc_hw.bench.chip_file import CHIP_FILE, MAX_PORTS
from optinc_hw.bench.station_file import STATION_FILE
from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout

BenchKind = Literal["homodyne", "mesh"]
"""OptINC's own chip with modulators and homodyne receivers, or a bare mesh with one lit port and power detectors."""


class DesignValues(TypedDict, total=False):
    """Design values of the heaters: resistance in ohm, power in W for a phase of pi, settling time in s."""

    resistance_ohm: float
    p_pi_w: float
    settle_s: float


# Limits of a heater in units of its power for pi: room for one that is 20 % less efficient than its design.
_MAX_POWER_PI = 3.0
_MEAN_POWER_PI = 2.25
_VOLTAGE_MARGIN = 1.18
_CURRENT_MARGIN = 1.7
_FULL_VOLTAGE_V, _FULL_CURRENT_A = 12.0, 0.024
_RAMP_STEP_V = 2.5

_STATION_HEAD = """\
# Instruments of the bench: a plain QCoDeS station file (qcodes.station.Station loads it unchanged).
# Do not give initial_value here: connecting to a bench must not change any output.
# Addresses of heater drivers are serial ports (COM3, /dev/ttyUSB0) or URLs (socket://host:port);
# laser and power meters have VISA addresses (TCPIP0::192.168.1.20::5000::SOCKET).
instruments:
"""

_CHIP_HEAD = """\
# The chip: its layout, its limits, and which heater and photodiode hangs on which instrument of station.yaml.
# Unknown keys are refused; `optinc check FOLDER` validates both files and shows the wiring.
version: 1
name: {name}
ports: {ports}
layout: rectangular           # Clements mesh: {heaters} heaters and {detectors} photodiodes
{receivers}
laser:
  instrument: laser
  wavelength_nm: 1550.0
  power_dbm: 10.0

averaging_time_s: 0.01        # of each power meter reading

settling:
  settle_s: {settle_s:<18}# ten thermal time constants of a heater

ramp:                         # heater voltages never jump further than this
  step_v: {ramp_step_v}
  interval_s: 0.0002

limits:
  total_power_w: {total_power_w}          # electrical power of all heaters together

safe_state:                   # how every session leaves the chip
  heater_voltage_v: 0.0
  laser_shutter: closed

nominal:                      # design values, used until a calibration is in force
  resistance_ohm: {resistance_ohm}
  p_pi_w: {p_pi_w:<20}# heater power for a phase of pi

calibration: null             # file name of the calibration record in force; written by `optinc calibrate`

# Serial numbers are optional; where one is given, another instrument at that address is refused.
serial_numbers: {{}}

# One line for each heater.  A heater may state its own max_voltage_v, max_current_a and max_power_w.
heaters:
  defaults:
    max_voltage_v: {max_voltage_v}
    max_current_a: {max_current_a}
    max_power_w: {max_power_w}
"""

_POWER_RECEIVERS = """\
receivers: power              # one photodiode at each output; the mesh has nothing but its MZIs
"""

_INPUTS_HEAD = """
# One line for each input port that can be lit: the way of the laser's light through an optical switch.  Light may pass
# the switch in either direction; here the laser is on its common port, output 0.
inputs:
"""


def instrument_names(ports: int, kind: BenchKind = "homodyne") -> tuple[str, ...]:
    """Return the names of the instruments of the default wiring: heater chains, meters, input switch, laser.

    Raises
    ------
    ConfigurationError
        If ``ports`` is not an integer from 2 to 64, or there is no such kind.
    """
    return default_wiring(_layout(ports, kind)).instruments


def write_bench_folder(
    folder: str | Path,
    ports: int,
    addresses: Mapping[str, str],
    *,
    kind: BenchKind = "homodyne",
    **design: Unpack[DesignValues],
) -> None:
    """Write ``station.yaml`` and ``chip.yaml`` for the default wiring of a chip of ``ports`` ports.

    Heaters in the layout's order on Qontrol chains ``heaters_0``, ``heaters_1``, ... of at most 8 modules of 8
    channels; photodiodes on Keysight meters of 8 ports, ``meter_plus_0``, ... and ``meter_minus_0``, ... or, of a bare
    mesh, ``meter_0``, ...; a Santec ``laser``; for a bare mesh a DiCon ``input_switch`` between laser and input ports.

    Parameters
    ----------
    folder
        Made if absent; existing files of these names are never overwritten.
    ports
        Ports of the chip, 2 to 64.
    addresses
        Address of each instrument of `instrument_names`.
    kind
        ``"homodyne"``: modulators and homodyne receivers; ``"mesh"``: a bare mesh, light in one port at a time, a
        power detector at every output.
    **design
        Design values of a heater: ``resistance_ohm`` (1200), ``p_pi_w``, its power in W for a phase of pi (0.020), and
        ``settle_s``, the time in s after which it is settled (0.0005). Limits follow from them.

    Raises
    ------
    ConfigurationError
        If a file exists already, ``ports`` is out of range, a design value is not possible, or the names in
        ``addresses`` do not match.
    """
    layout = _layout(ports, kind)
    wiring = default_wiring(layout)
    expected = wiring.instruments
    if set(addresses) != set(expected):
        wrong = sorted(set(addresses) ^ set(expected))
        raise ConfigurationError(
            f"addresses for {', '.join(wrong)} are missing or not needed; a chip of {ports} ports needs "
            f"exactly {', '.join(expected)}"
        )
    values = _design_values(len(layout.heaters), **design)
    place = Path(folder)
    for name in (STATION_FILE, CHIP_FILE):
        if (place / name).exists():
            raise ConfigurationError(f"{place / name} exists already and is not overwritten; choose another folder")
    try:
        # A new folder appears whole or not at all: a half one would be refused by the next try.
        made = place if place.exists() else place.with_name(f".{place.name}.part")
        made.mkdir(parents=True, exist_ok=True)
        write_text(made / STATION_FILE, _station_text(wiring, addresses))
        write_text(made / CHIP_FILE, _chip_text(layout, wiring, values))
        if made != place:
            made.rename(place)
    except OSError as error:
        raise ConfigurationError(f"{place}: cannot be written ({error}); choose a folder you may write to") from error


def _layout(ports: int, kind: BenchKind) -> ChipLayout:
    if ports not in range(2, MAX_PORTS + 1):
        raise ConfigurationError(f"ports = {ports!r}: a chip has 2 to {MAX_PORTS} ports; give an integer in that range")
    if kind not in get_args(BenchKind):
        raise ConfigurationError(f"kind = {kind!r}: a bench is one of {', '.join(get_args(BenchKind))}")
    return ChipLayout(ports) if kind == "homodyne" else ChipLayout(ports, inputs="ports", receivers="power")


def _design_values(
    heaters: int, resistance_ohm: float = 1200.0, p_pi_w: float = 0.020, settle_s: float = 0.0005
) -> dict[str, str]:
    """Values of chip.yaml that follow from the heaters' design, as the file states them."""
    for name, value in (("resistance_ohm", resistance_ohm), ("p_pi_w", p_pi_w), ("settle_s", settle_s)):
        if not 0.0 < value < math.inf:
            raise ConfigurationError(f"{name} = {value!r}: a design value is more than 0; correct it")
    power = _MAX_POWER_PI * p_pi_w
    voltage = min(_VOLTAGE_MARGIN * math.sqrt(power * resistance_ohm), _FULL_VOLTAGE_V)
    current = min(_CURRENT_MARGIN * math.sqrt(power / resistance_ohm), _FULL_CURRENT_A)
    return {
        "resistance_ohm": str(float(resistance_ohm)), "p_pi_w": _watts(p_pi_w), "settle_s": str(float(settle_s)),
        "max_voltage_v": str(round(voltage, 1)), "max_current_a": str(round(current, 4)), "max_power_w": _watts(power),
        "total_power_w": str(round(_MEAN_POWER_PI * p_pi_w * heaters, 2 if p_pi_w >= 0.01 else 4)),
    }  # fmt: skip


def _watts(value: float) -> str:
    return f"{value:.3f}" if math.isclose(value, round(value, 3)) else f"{value:.4g}"


def _station_text(wiring: DefaultWiring, addresses: Mapping[str, str]) -> str:
    lines = [_STATION_HEAD]
    for driver, key, sizes in (
        ("drivers.QontrolQ8iv", "modules", wiring.heater_modules),
        ("drivers.KeysightN7745A", "ports", wiring.meter_ports),
        ("drivers.DiConMemsSwitch", "channels", wiring.switch_channels),
    ):
        lines += [_station_entry(name, driver, addresses[name], f"{key}: {size}") for name, size in sizes.items()]
    lines.append(_station_entry(LASER, "drivers.SantecTSL570", addresses[LASER], ""))
    return "".join(lines)


def _station_entry(name: str, driver: str, address: str, init: str) -> str:
    quoted = address.replace("'", "''")
    text = f"  {name}:\n    type: {driver}\n    address: '{quoted}'\n"
    return text + (f"    init:\n      {init}\n" if init else "")


def _chip_text(layout: ChipLayout, wiring: DefaultWiring, design: Mapping[str, str]) -> str:
    count = len(layout.heaters)
    homodyne = layout.receivers == "homodyne"
    text = _CHIP_HEAD.format(
        name=f"{'optinc' if homodyne else 'mesh'}_{layout.ports}",
        ports=layout.ports,
        heaters=count,
        detectors=len(layout.detectors),
        receivers="" if homodyne else _POWER_RECEIVERS,
        ramp_step_v=_RAMP_STEP_V if homodyne else design["max_voltage_v"],  # a mesh alone is set in one step
        **design,
    )
    width = max(len(name) for name in layout.heaters) + 1
    for name, (chain, channel) in wiring.heaters.items():
        text += f"  {name + ':':<{width}} {{instrument: {chain}, channel: {channel}}}\n"
    what = "the plus and the minus port of each balanced receiver" if homodyne else "one at each output of the mesh"
    text += f"\n# One line for each photodiode: {what}.\ndetectors:\n"
    for name, (meter, port) in wiring.detectors.items():
        text += f"  {name + ':':<14} {{instrument: {meter}, port: {port}}}\n"
    if wiring.inputs:
        text += _INPUTS_HEAD
    for port, (switch, channel) in wiring.inputs.items():
        text += f"  {port}: {{switch: {{instrument: {switch}, input: {channel}, output: 0}}}}\n"
    return text
