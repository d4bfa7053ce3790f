"""Bench folders of a 2-port chip with instruments of different vendors, for tests that must hold on any bench."""

from optinc_hw.bench import write_bench_folder
from optinc_hw.bench.write import instrument_names
from optinc_hw.photonics import ChipLayout

PORTS = 2
LAYOUT = ChipLayout(PORTS)

# One line per instrument: driver and init; then where heaters hang and where photodiodes are read.
BENCHES = {
    "nicslab_keysight_mpm": (
        {
            "bank": ("NicslabXPOW", "channels: 40, dialect: counts"),
            "laser": ("KeysightLaser", "model: N7776C"),
            "meter": ("SantecMPM210H", "modules: 1"),
        },
        lambda k: ("bank", k),
        lambda k: f"{{instrument: meter, port: {k}}}",
    ),
    "qdac_cobrite_thorlabs_dicon": (
        {
            "bank": ("QDevilQDAC2", "channels: 24"),
            "laser": ("CobriteLaser", "model: DX"),
            "meter": ("ThorlabsPM", "model: PM100D"),
            "switch": ("DiConMemsSwitch", "channels: 4"),
        },
        lambda k: ("bank", k),
        lambda k: f"{{instrument: meter, port: 0, switch: {{instrument: switch, input: {k}}}}}",
    ),
    "keithley_8164b_polatis": (
        {f"smu_{k}": ("Keithley2600", "channels: 2") for k in range(6)}
        | {
            "laser": ("KeysightLaser", "model: 8164B"),
            "meter": ("KeysightN7745A", "ports: 4, model: N7744C"),
            "oxc": ("PolatisOXC", "ports: 4"),
        },
        lambda k: (f"smu_{k // 2}", k % 2),
        lambda k: f"{{instrument: meter, port: {k}, switch: {{instrument: oxc, input: {k}, output: {3 - k}}}}}",
    ),
}


def write_mixed_folder(folder, name):
    """Write the bench folder ``name`` of `BENCHES`, with addresses that lead nowhere."""
    instruments, heater, detector = BENCHES[name]
    write_bench_folder(folder, PORTS, {name: f"nowhere:{name}" for name in instrument_names(PORTS)})
    station = ["instruments:"]
    for instrument, (driver, init) in instruments.items():
        station += [f"  {instrument}:", f"    type: drivers.{driver}", f"    address: 'nowhere:{instrument}'"]
        station += [f"    init: {{{init}}}"]
    (folder / "station.yaml").write_text("\n".join([*station, ""]))
    chip = folder / "chip.yaml"
    head = chip.read_text().split("\nheaters:\n")[0]
    # The smallest current limit of these sources is that of the QDAC-II.
    lines = ["heaters:", "  defaults: {max_voltage_v: 9.0, max_current_a: 0.009, max_power_w: 0.060}"]
    for k, element in enumerate(LAYOUT.heaters):
        instrument, channel = heater(k)
        lines += [f"  {element}: {{instrument: {instrument}, channel: {channel}}}"]
    lines += ["detectors:"]
    lines += [f"  {element}: {detector(k)}" for k, element in enumerate(LAYOUT.detectors)]
    chip.write_text("\n".join([head, *lines, ""]))
    return folder
