"""The vendor's own driver, unmodified, on a simulated CoBrite."""

import contextlib
import socket

import pytest
from cobrite import CoBrite, CoBriteError, ScpiStatus

from optinc_hw.clock import WallClock
from simulated_instruments import HiddenChip, HiddenEffects, SimulatedCobrite
from simulated_instruments._tcp import TcpServer

RECEIVERS_SHARE = 0.15
TUNING_S = 1e-3


class Wire:
    """The client's transport without the 0.2 s nap of its VISA transport before each answer."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10.0)
        self._answers = self._socket.makefile("rb")

    def query(self, command):
        self._socket.sendall(command.encode() + b";")
        answer = bytearray()
        while not answer.endswith(b";"):
            answer += self._answers.read(1)
        return answer[:-1].decode()

    def close(self):
        self._answers.close()
        self._socket.close()


class Unit:
    """A chassis, its chip and its port."""

    def __init__(self, server, instrument, chip):
        self.port, self.instrument, self.chip = server.port, instrument, chip

    @contextlib.contextmanager
    def client(self):
        client = CoBrite(_transport=Wire(self.port), open=True)
        try:
            yield client
        finally:
            client.close()

    def light(self):
        """Power that enters the chip."""
        return self.chip.detector_powers().sum() / RECEIVERS_SHARE


@contextlib.contextmanager
def unit(**kwargs):
    clock = WallClock()
    chip = HiddenChip.from_seed(0, 2, effects=HiddenEffects.none(), clock=clock)
    instrument = SimulatedCobrite(chip, clock, tuning_time_s=TUNING_S, **kwargs)
    server = TcpServer(instrument, "cobrite")
    try:
        yield Unit(server, instrument, chip)
    finally:
        server.close()


def test_over_visa_as_a_lab_opens_it(monkeypatch):
    monkeypatch.setenv("PYVISA_LIBRARY", "@py")
    with unit() as dx:
        client = CoBrite(address="127.0.0.1", tcp_port=dx.port, open=True)
        try:
            client.set_wavelength(1555.5, 1, 1, 1)
            assert client.get_wavelength(1, 1, 1) == ((1, 1, 1, 1555.5),)
        finally:
            client.close(disable=False)


def test_layouts_of_both_families():
    with unit() as dx, dx.client() as client:
        assert client.layout() == {1: {1: {1: "GC", 2: "GC"}}}
        assert client.idn().startswith("ID Photonics,CoBrite-DX,")
    with unit(model="MX", port=(1, 3, 2)) as mx, mx.client() as client:
        assert client.layout() == {1: {1: dict.fromkeys((1, 2, 3, 4), "GC"), 2: {}, 3: {1: "GC", 2: "GC"}}}


def test_a_port_is_tuned_and_lights_the_chip():
    with unit() as dx, dx.client() as client:
        port = client.port(1, 1, 1)
        port.wavelength, port.power, port.state = 1550.1, 10.0, True
        assert (port.wavelength, port.power, port.state) == (1550.1, 10.0, True)
        assert port.frequency == pytest.approx(299_792.458 / 1550.1, abs=1e-6)
        assert port.actual_power == 10.0
        assert dx.light() == pytest.approx(0.01)
        port.frequency, port.offset, port.power = 193.5, -2.5, 7.0
        assert (port.frequency, port.offset) == (193.5, -2.5)
        assert port.laser_config == {
            "frequency": 193.5, "offset": -2.5, "power": 7.0, "state": True, "busy": False, "dither": 1,
        }  # fmt: skip
        assert dx.light() == pytest.approx(1e-3 * 10**0.7)
        assert port.monitor["ld_current_ma"] > 0.0
        port.state = False
        assert dx.light() == 0.0


def test_limits_are_consistent():
    with unit() as dx, dx.client() as client:
        port = client.port(1, 1, 2)
        limits = port.limits
        assert limits["freq_min"] < port.frequency < limits["freq_max"]
        assert port.frequency_limits == {"min": limits["freq_min"], "max": limits["freq_max"]}
        assert port.wavelength_limits["min"] == pytest.approx(299_792.458 / limits["freq_max"], abs=1e-4)
        assert port.power_limits == {"min": limits["pow_min"], "max": limits["pow_max"]}
        assert port.offset_limits == limits["offset_range"]


def test_everything_at_once():
    with unit() as dx, dx.client() as client:
        client.set_config(194.0, 1.0, 8.0, True, 0, chassis=1, slot=1, device=1)
        client.busy_wait(1, 1, 1)
        assert client.opc()
        client.opc_wait()
        ((*_, config),) = client.get_config(1, 1, 1)
        assert (config["frequency"], config["power"], config["state"], config["dither"]) == (194.0, 8.0, True, 0)
        client.set_dither(True, 1, 1, 1)
        assert client.port(1, 1, 1).dither is True
        assert client.get_config(1, 1, 2)[0][-1]["frequency"] != 194.0
        assert "194.0000 THz" in client.full_info()


def test_closing_switches_every_laser_off():
    with unit() as dx:
        with dx.client() as client:
            client.set_state(True)
            assert dx.light() > 0.0
        assert dx.light() == 0.0


def test_the_state_outlives_a_connection():
    with unit() as dx:
        with dx.client() as client:
            client.port(1, 1, 1).wavelength = 1549.0
        with dx.client() as client:
            assert client.port(1, 1, 1).wavelength == 1549.0


def test_errors_have_the_codes_that_the_client_knows():
    with unit() as dx, dx.client() as client:

        def code_of(command):
            with pytest.raises(CoBriteError) as caught:
                client.query(command)
            return caught.value.code

        assert code_of("NONSENSE") == ScpiStatus.COMMAND_ERROR
        assert code_of("WAV 1,1,1,800") == ScpiStatus.COMMAND_ERROR
        assert code_of("WAV? 1,1,7") == ScpiStatus.COMMAND_ERROR
        assert code_of("WAV? 1,1") == ScpiStatus.COMMAND_ERROR_WRONG_ARG_COUNT
        assert code_of("LOCK 1") == ScpiStatus.EXEC_ERROR_UNAUTHORIZED
        assert client.login(1) == 1
        client.set_lockout(True)
        with dx.client() as other:
            assert other.get_lockout()
            with pytest.raises(CoBriteError, match="locked"):
                other.port(1, 1, 1).power = 8.0
        client.set_lockout(False)
        dx.instrument.set_standby(True)
        assert code_of("STAT 1,1,1,1") == ScpiStatus.COMMAND_ERROR_POWER_DOWN


def test_alarms_interlock_and_addresses_are_answered():
    with unit() as dx, dx.client() as client:
        assert (client.get_alarm(), client.port(1, 1, 1).laser_alarm, client.get_interlock()) == (0, 0, False)
        assert client.get_temp()["temp"] > 0.0
        assert client.get_ip_address() == "127.0.0.1"
        client.abort()
        dx.instrument.set_interlock(True)
        client.port(1, 1, 1).state = True
        assert (client.get_interlock(), client.port(1, 1, 1).state) == (True, False)
