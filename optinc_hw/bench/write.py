"""Writes a bench folder for the default wiring, to be edited by its owner."""

from collections.abc import Mapping
from pathlib import Path

from optinc_hw._files import write_text
from optinc_hw.bench.chip_file import CHIP_FILE, MAX_PORTS
from optinc_hw.bench.station_file import STATION_FILE
from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout

_CHANNELS_PER_MODULE = 8
_MODULES_PER_CHAIN = 8
_PORTS_PER_METER = 8
_POWER_PER_HEATER_W = 0.045

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

laser:
  instrument: laser
  wavelength_nm: 1550.0
  power_dbm: 10.0

averaging_time_s: 0.01        # of each power meter reading

settling:
  settle_s: 0.0005            # ten thermal time constants of a heater

ramp:                         # heater voltages never jump further than this
  step_v: 2.5
  interval_s: 0.0002

limits:
  total_power_w: {total_power_w}          # electrical power of all heaters together

safe_state:                   # how every session leaves the chip
  heater_voltage_v: 0.0
  laser_shutter: closed

nominal:                      # design values, used until a calibration is in force
  resistance_ohm: 1200.0
  p_pi_w: 0.020               # heater power for a phase of pi

calibration: null             # file name of the calibration record in force; written by `optinc calibrate`

# Serial numbers are optional; where one is given, another instrument at that address is refused.
serial_numbers: {{}}

# One line for each heater.  A heater may state its own max_voltage_v, max_current_a and max_power_w.
heaters:
  defaults:
    max_voltage_v: 10.0
    max_current_a: 0.012
    max_power_w: 0.060
"""


def instrument_names(ports: int) -> tuple[str, ...]:
    """Return the names of the instruments of the default wiring: heater chains, meters, laser.

    Raises
    ------
    ConfigurationError
        If ``ports`` is not an integer from 2 to 64.
    """
    if ports not in range(2, MAX_PORTS + 1):
        raise ConfigurationError(f"ports = {ports!r}: a chip has 2 to {MAX_PORTS} ports; give an integer in that range")
    return (*_modules(ports), *_meter_sizes(ports), "laser")


def write_bench_folder(folder: str | Path, ports: int, addresses: Mapping[str, str]) -> None:
    """Write ``station.yaml`` and ``chip.yaml`` for the default wiring of a chip of ``ports`` ports.

    Heaters in the layout's order on chains ``heaters_0``, ``heaters_1``, ... of at most 8 modules of 8 channels;
    plus photodiodes on ``meter_plus_0``, ..., minus photodiodes on ``meter_minus_0``, ... of 8 ports each; one
    ``laser``.

    Parameters
    ----------
    folder
        Made if absent; existing files of these names are never overwritten.
    ports
        Ports of the chip, 2 to 64.
    addresses
        Address of each instrument of `instrument_names`.

    Raises
    ------
    ConfigurationError
        If a file exists already, ``ports`` is out of range, or the names in ``addresses`` do not match.
    """
    expected = instrument_names(ports)
    if set(addresses) != set(expected):
        wrong = sorted(set(addresses) ^ set(expected))
        raise ConfigurationError(
            f"addresses for {', '.join(wrong)} are missing or not needed; a chip of {ports} ports needs "
            f"exactly {', '.join(expected)}"
        )
    place = Path(folder)
    for name in (STATION_FILE, CHIP_FILE):
        if (place / name).exists():
            raise ConfigurationError(f"{place / name} exists already and is not overwritten; choose another folder")
    try:
        place.mkdir(parents=True, exist_ok=True)
        write_text(place / STATION_FILE, _station_text(ports, addresses))
        write_text(place / CHIP_FILE, _chip_text(ports))
    except OSError as error:
        raise ConfigurationError(f"{place}: cannot be written ({error}); choose a folder you may write to") from error


def _modules(ports: int) -> dict[str, int]:
    count = -(-len(ChipLayout(ports).heaters) // _CHANNELS_PER_MODULE)
    chains = -(-count // _MODULES_PER_CHAIN)
    return {f"heaters_{k}": min(_MODULES_PER_CHAIN, count - k * _MODULES_PER_CHAIN) for k in range(chains)}


def _meter_sizes(ports: int) -> dict[str, int]:
    meters = -(-ports // _PORTS_PER_METER)
    return {f"meter_{side}_{k}": _PORTS_PER_METER for side in ("plus", "minus") for k in range(meters)}


def _station_text(ports: int, addresses: Mapping[str, str]) -> str:
    lines = [_STATION_HEAD]
    for name, modules in _modules(ports).items():
        lines.append(_station_entry(name, "drivers.QontrolQ8iv", addresses[name], f"modules: {modules}"))
    for name, size in _meter_sizes(ports).items():
        lines.append(_station_entry(name, "drivers.KeysightN7745A", addresses[name], f"ports: {size}"))
    lines.append(_station_entry("laser", "drivers.SantecTSL570", addresses["laser"], ""))
    return "".join(lines)


def _station_entry(name: str, driver: str, address: str, init: str) -> str:
    quoted = address.replace("'", "''")
    text = f"  {name}:\n    type: {driver}\n    address: '{quoted}'\n"
    return text + (f"    init:\n      {init}\n" if init else "")


def _chip_text(ports: int) -> str:
    layout = ChipLayout(ports)
    count = len(layout.heaters)
    text = _CHIP_HEAD.format(
        name=f"optinc_{ports}",
        ports=ports,
        heaters=count,
        detectors=len(layout.detectors),
        total_power_w=round(_POWER_PER_HEATER_W * count, 2),
    )
    width = max(len(name) for name in layout.heaters) + 1
    per_chain = _CHANNELS_PER_MODULE * _MODULES_PER_CHAIN
    for k, name in enumerate(layout.heaters):
        chain, channel = divmod(k, per_chain)
        text += f"  {name + ':':<{width}} {{instrument: heaters_{chain}, channel: {channel}}}\n"
    text += "\n# One line for each photodiode: the plus and the minus port of each balanced receiver.\ndetectors:\n"
    for name in layout.detectors:
        _, j, side = name.split("_")
        meter, port = divmod(int(j), _PORTS_PER_METER)
        text += f"  {name + ':':<14} {{instrument: meter_{side}_{meter}, port: {port}}}\n"
    return text
