"""The Qontrol driver against byte-exact scripts."""

import json
import threading

import numpy as np
import pytest
from _qontrol_scripts import FIND, OK, SAFE, ZEROS, chain_on, connect_steps, iall, lines, vall, vvec
from _scripted_link import SHORT_S, HangUp, ScriptServer, raises_in_time
from qcodes.instrument import Instrument

from drivers import QontrolQ8iv
from optinc_hw.errors import (
    ConfigurationError,
    DeviceError,
    IdentityError,
    LimitError,
    LinkError,
    LinkTimeoutError,
    ReplyError,
)

# Connecting and identity ----------------------------------------------------------------------------------------


def test_connecting_and_closing_only_asks():
    with chain_on(modules=2) as chain:
        assert chain.channel_count == 16
        assert chain.module_ids == ("Q8iv-0001", "Q8iv-0002")
        assert len(chain.channels) == 16


def test_leftovers_of_another_session_and_power_up_lines_do_not_disturb_connecting(caplog):
    stale = [(b"ID?\n", b"00 V\n+1.2000 V\nOK\nE90:00\nQ8iv-0001\n"), *connect_steps()[1:]]
    with ScriptServer(*stale, vall(1.0)) as server:
        chain = QontrolQ8iv("heaters", server.serial_url, modules=1, timeout=5.0)
        assert chain.read_voltages()[0] == 1.0
        chain.close()
    assert "powered up" in caplog.text


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"Q8iv-0001: 0\n", "exactly 2 modules"),
        (b"Q8iv-0001: 0\nQ8iv-0002: 1\nQ8iv-0003: 2\n", "exactly 2 modules"),
        (b"Q8iv-0001: 0\n+1.0000 V\n", "exactly 2 modules"),
    ],
)
def test_wrong_chain_is_refused_and_leaves_nothing_behind(reply, message):
    with ScriptServer(*FIND, (b"NUPALL?\n", reply)) as server, pytest.raises(IdentityError, match=message):
        QontrolQ8iv("heaters", server.serial_url, modules=2, timeout=SHORT_S)
    assert not Instrument.exist("heaters")
    with chain_on() as chain:  # the name is free
        assert chain.name == "heaters"


def test_silent_or_wrong_instrument():
    script = (b"ID?\n", b"\xffSantec,TSL-570,1,2\n")
    with ScriptServer(script) as server, pytest.raises(LinkTimeoutError, match=r"heaters at socket.*xffSantec"):
        QontrolQ8iv("heaters", server.serial_url, modules=1, timeout=0.05)


@pytest.mark.parametrize("name", ["mzi-1", "1heaters", "heater 3", "ch0.5", ""])
def test_names_that_are_no_identifiers_are_refused(name):
    with pytest.raises(ConfigurationError, match="identifier"):
        QontrolQ8iv(name, "socket://127.0.0.1:1", modules=1)


def test_impossible_arguments_are_refused():
    for kwargs in ({"modules": 0}, {"modules": 1, "ramp_step": 0.0}, {"modules": 1, "ramp_interval": -1.0}):
        with pytest.raises((ConfigurationError, LimitError)):
            QontrolQ8iv("heaters", "socket://127.0.0.1:1", **kwargs)
    with pytest.raises(LinkError, match="cannot open"):
        QontrolQ8iv("heaters", "socket://127.0.0.1:1", modules=1)


def test_taken_name_is_refused_before_the_port_is_opened():
    with chain_on() as chain:
        with pytest.raises(ConfigurationError, match="open already"):
            QontrolQ8iv("heaters", "socket://127.0.0.1:1", modules=1)
        assert Instrument.find_instrument("heaters") is chain


def test_idn_and_a_dead_link(caplog):
    steps = [*FIND, (b"ID?\n", HangUp())]
    with chain_on(*steps) as chain:
        assert chain.IDN() == {"vendor": "Qontrol", "model": "Q8iv", "serial": "0001", "firmware": "v2.4.1"}
        with pytest.raises(LinkError):
            chain.get_idn()


def test_nothing_is_printed(capsys):
    with chain_on(*FIND) as chain:
        chain.connect_message()
    assert capsys.readouterr().out == ""


# Setting and ramps ----------------------------------------------------------------------------------------------


def test_ramp_starts_at_the_measured_voltage_and_then_at_the_last_set_one():
    steps = [
        vall(0.4, 1.0002, -0.0001),
        vvec("1=2.00020"),
        vvec("1=2.50000"),
        vvec("1=1.50000"),
        vvec("1=0.50000"),
        vvec("1=0.25000"),
        vall(0.4, 0.25),
        vvec("0=0.00000,0.00000,0.00000,0.00000,0.00000,0.00000,0.00000,0.00000"),
        vall(),
    ]
    with chain_on(*steps) as chain:
        chain.ramp_interval = 0.25
        chain.set_voltages({1: 2.5})
        assert chain.clock.now() == 0.25
        chain.set_voltages({1: 0.25})
        assert chain.clock.now() == 1.0  # an interval lies between two ramps, too
        chain.set_voltages({1: 0.25})  # already there: nothing is sent


def test_only_touched_modules_and_changed_channels_are_sent():
    steps = [
        vall(count=24),
        vvec("0=0.50000,0.50000,0.50000"),
        vvec("23=1.00000"),
        vvec("23=1.50000"),
        vvec("0=0.60000,0.50000,0.70000"),  # channel 1 keeps its value inside the run
        vall(0.6, 0.5, 0.7, count=24),
        vvec(f"0={ZEROS}"),
        vvec(f"8={ZEROS}"),
        vvec(f"16={ZEROS}"),
        vall(count=24),
    ]
    with chain_on(*steps, modules=3) as chain:
        chain.set_voltages({23: 1.5, 0: 0.5, 2: 0.5, 1: 0.5})
        chain.set_voltages({0: 0.6, 1: 0.5, 2: 0.7})


def test_ramp_through_the_qcodes_parameters():
    steps = [vall(), vvec("3=1.00000"), vvec("3=2.00000"), (b"V3?\n", b"-0.0003 V\n"), vvec("3=1.00000")]
    steps += [vvec("3=0.00000"), (b"I3?\n", b"-0.0036 mA\n"), (b"V3?\n", b"+2.0000 V\n"), (b"I3?\n", b"+2.0000 mA\n")]
    with chain_on(*steps) as chain:
        channel = chain.channels[3]
        channel.voltage(2.0)
        assert channel.voltage() == -0.0003
        channel.voltage(-0.0003)  # its own output is accepted, as 0 V
        assert channel.current() == pytest.approx(-3.6e-6)
        assert channel.power() == pytest.approx(4e-3)
        chain._outputs.driven = False  # the script ends here


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({2: 1.0, 3: 12.5}, r"heaters.*channel 3.*12\.5 V.*12 V"),
        ({3: -0.5}, r"channel 3.*-0\.5 V.*0 V"),
        ({3: float("nan")}, "channel 3.*nan V"),
        ({8: 1.0}, "no channel 8.*0 to 7"),
        ({-1: 1.0}, "no channel -1"),
        ({True: 1.0}, "no integer"),
        ({4: 5.5}, r"channel 4.*5\.5 V.*5 V"),
    ],
)
def test_limits_are_checked_before_anything_is_sent(values, message):
    with chain_on() as chain:
        chain.set_channel_limits(4, max_voltage=5.0)
        with pytest.raises(LimitError, match=message):
            chain.set_voltages(values)


def test_unknown_resistance_is_measured_once_on_the_first_step():
    steps = [vall(), vvec("0=1.00000"), iall(1.0), vvec("0=2.00000"), vvec("0=3.00000"), vvec("0=2.50000")]
    with chain_on(*steps) as chain:
        chain.set_channel_limits(0, max_power=10e-3, max_current=5e-3)
        chain.set_voltages({0: 3.0})
        chain.set_voltages({0: 2.5})
        with pytest.raises(LimitError, match=r"1000\.0 ohm.*power"):
            chain.set_voltages({0: 3.5})  # known by now: nothing is sent
        chain._outputs.driven = False


def test_too_small_a_resistance_takes_the_first_step_back():
    steps = [vall(0.0, 0.4), vvec("1=1.40000"), iall(0.0, 14.0), vvec("1=0.40000")]
    with chain_on(*steps) as chain:
        chain.set_channel_limits(1, max_power=50e-3)
        with pytest.raises(LimitError, match=r"channel 1, whose resistance is 100\.0 ohm"):
            chain.set_voltages({1: 5.0})
        chain._outputs.driven = False


# Error lines ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [b"E01:03\nOK\n", b"OK\nE01:03\n"])
def test_error_line_beside_the_acknowledgement(reply):
    steps = [vall(), vvec("3=0.50000", reply), vall(0.0, 0.0, 0.0, 0.2), vvec("3=0.50000"), *SAFE]
    with chain_on(*steps) as chain:
        with pytest.raises(DeviceError, match=r"E01:03 \(over-voltage\).*VVEC3") as caught:
            chain.set_voltages({3: 0.5})
        assert "stopped in step 1" in caught.value.__notes__[0]
        chain.set_voltages({3: 0.5})  # starts from a measured voltage again


def test_error_line_instead_of_the_acknowledgement():
    steps = [vall(), vvec("3=0.50000", b"E13:00\n"), *FIND, vall(), vvec("3=0.50000"), *SAFE]
    with chain_on(*steps) as chain:
        with pytest.raises(DeviceError, match="operation forbidden"):
            chain.set_voltages({3: 0.5})
        chain.set_voltages({3: 0.5})


def _check_until_something_came(chain):
    while True:  # the line may take a moment on its way
        chain.check_errors()


def test_later_error_line_is_reported_before_the_next_command_is_sent():
    shown = threading.Event()
    steps = [vall(), vvec("3=0.50000", [OK, shown, b"E02:03\n"]), (b"V0?\n", b"+0.0000 V\n"), *SAFE]
    with chain_on(*steps) as chain:
        chain.set_voltages({3: 0.5})
        shown.set()
        with pytest.raises(DeviceError, match="over-current"):
            _check_until_something_came(chain)
        assert chain.read_voltage(0) == 0.0


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (lines([1.0], b"V", 4) + b"E02:01\n" + lines([], b"V", 4), DeviceError),
        (lines([1.0], b"V", 7) + b"+25.0000 V\n", ReplyError),
        (lines([1.0], b"mA"), ReplyError),
        (lines([1.0], b"V", 9), ReplyError),
        (lines([1.0], b"V", 7) + b"+1.0\xff00 V\n", ReplyError),
        (lines([1.0], b"V", 7) + b"+1.0", LinkTimeoutError),
    ],
)
def test_bad_readings_raise_and_the_next_one_is_right(reply, error):
    recover = [] if error is DeviceError else FIND
    with chain_on((b"VALL?\n", reply), *recover, vall(2.0)) as chain:
        with raises_in_time(error, chain):
            chain.read_voltages()
        assert chain.read_voltages().tolist() == [2.0] + [0.0] * 7


def test_readings():
    with chain_on(vall(0.0, 1.5, 0.01), iall(-0.0036, 1.25), vall(0.0, 1.5, 0.01)) as chain:
        voltages, currents = chain.read_voltages(), chain.read_currents()
        assert voltages.dtype == np.float64
        assert voltages.tolist() == [0.0, 1.5, 0.01, 0.0, 0.0, 0.0, 0.0, 0.0]
        assert currents[:2] == pytest.approx([-3.6e-6, 1.25e-3])
        assert chain.nonzero_outputs() == {1: 1.5}


# Snapshots ------------------------------------------------------------------------------------------------------

READ_ALL = [*FIND, vall(0.1), iall(0.2)]


def test_snapshots_use_the_bus_as_documented():
    with chain_on(*READ_ALL * 3) as chain:
        chain.snapshot_base(False)
        chain.snapshot_base("Never")
        chain.snapshot_base(None)  # nothing was read before
        chain.snapshot_base("Only_invalid")
        chain.snapshot_base(None)
        chain.snapshot_base(True)
        snapshot = chain.snapshot_base("All")
        assert snapshot == json.loads(json.dumps(snapshot, allow_nan=False))
        channel = snapshot["submodules"]["channels"]["channels"]["heaters_ch0"]["parameters"]
        assert channel["voltage"]["value"] == 0.1
        assert channel["current"]["value"] == pytest.approx(2e-4)


def test_snapshot_of_a_dead_instrument_shows_the_last_values(caplog):
    with chain_on(*READ_ALL, (b"ID?\n", HangUp())) as chain:
        chain.snapshot(update=True)
        snapshot = chain.snapshot(update=True)
        assert snapshot["parameters"]["IDN"]["value"]["serial"] == "0001"
    assert "last known values" in caplog.text
