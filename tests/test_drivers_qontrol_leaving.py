"""How the Qontrol driver leaves its heaters: by itself, after errors, on a dead link."""

import logging

import pytest
from _qontrol_scripts import FIND, OK, SAFE, ZEROS, chain_on, chain_steps, connect_steps, lines, vall, vvec
from _scripted_link import SHORT_S, HangUp, ScriptServer
from qcodes.instrument import Instrument

from drivers import QontrolQ8iv
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import DeviceError, IdentityError, LinkError


def test_closing_ramps_down_in_steps_after_an_exception():
    steps = [vall(), vvec("0=1.00000"), vvec("0=2.00000"), vall(2.0)]
    steps += [vvec("0=1.00000" + ",0.00000" * 7), vvec("0=0.00000"), vall()]

    def run():
        with chain_on(*steps) as chain:
            chain.set_voltages({0: 2.0})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()


def test_interrupted_ramp_is_followed_by_a_ramp_down():
    class InterruptingClock(SimulatedClock):
        interrupted = False

        def sleep(self, seconds):
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            super().sleep(seconds)

    steps = [vall(), vvec("0=1.00000"), *SAFE]
    with chain_on(*steps) as chain:
        chain.clock = InterruptingClock()
        with pytest.raises(KeyboardInterrupt):
            chain.set_voltages({0: 2.0})


def test_make_safe_is_idempotent():
    with chain_on(vall(), vvec("0=0.50000"), *SAFE) as chain:
        chain.set_voltages({0: 0.5})
        chain.make_safe()
        chain.make_safe()


def test_make_safe_goes_on_in_spite_of_error_lines(caplog):
    steps = [
        vall(),
        vvec("0=0.50000"),
        (b"VALL?\n", b"E02:00\n" + lines([0.5], b"V")),
        vvec(f"0={ZEROS}", b"E02:00\nOK\nE30:00\n"),
        vall(),
    ]
    with caplog.at_level(logging.WARNING), chain_on(*steps) as chain:
        chain.set_voltages({0: 0.5})
    assert "over-current" in caplog.text


def test_make_safe_zeroes_the_other_modules_when_one_fails_and_tries_again():
    steps = [
        vall(1.0, count=16),
        vvec("0=0.50000"),
        vall(0.5, count=16),
        vvec(f"0={ZEROS}", None),
        *FIND,
        vvec(f"8={ZEROS}"),
        vall(0.5, count=16),
        vvec(f"0={ZEROS}"),
        vvec(f"8={ZEROS}"),
        vall(count=16),
    ]
    with chain_on(*steps, modules=2) as chain:
        chain.set_voltages({0: 0.5})
        chain.timeout(SHORT_S)
        chain.make_safe()


def test_channel_that_does_not_go_down_is_an_error():
    attempt = [vall(0.5), vvec(f"0={ZEROS}"), vall(0.5)]
    with chain_on(*attempt * 3) as chain:
        with pytest.raises(DeviceError, match=r"\{0: 0\.5\}.*switch the supply off"):
            chain.make_safe()
        chain._outputs.driven = False


def test_make_safe_reopens_a_broken_link_and_checks_who_is_there():
    steps = [vall(), vvec("0=0.50000", HangUp()), *connect_steps(), vall(0.5)]
    steps += [vvec(f"0={ZEROS}"), vall()]
    with chain_on(*steps) as chain:
        with pytest.raises(LinkError) as caught:
            chain.set_voltages({0: 0.5})
        assert "last set: 0: unknown" in caught.value.__notes__[0]
        with pytest.raises(LinkError, match="reconnect"):
            chain.read_voltages()


def test_closing_a_dead_link_never_raises_and_frees_the_name(caplog):
    with ScriptServer(*connect_steps(), vall(), vvec("0=0.50000"), (b"V0?\n", HangUp())) as server:
        chain = QontrolQ8iv("heaters", server.serial_url, modules=1)
        chain.set_voltages({0: 0.5})
        with pytest.raises(LinkError):
            chain.read_voltage(0)
    chain.close()
    chain.close()
    assert "may not be in its safe state" in caplog.text
    assert not Instrument.exist("heaters")
    for action in (chain.read_voltages, chain.make_safe, chain.get_idn, chain.reconnect):
        with pytest.raises(LinkError, match="closed"):
            action()


def test_reconnecting_to_another_chain_is_refused():
    other = [(command, reply.replace(b"-0001", b"-0009")) for command, reply in chain_steps()]
    steps = [(b"V0?\n", HangUp()), *FIND, *other]
    with chain_on(*steps) as chain:
        with pytest.raises(LinkError):
            chain.read_voltage(0)
        with pytest.raises(IdentityError, match=r"Q8iv-0009.*another chain"):
            chain.reconnect()
        with pytest.raises(LinkError, match="down"):
            chain.set_voltages({0: 1.0})


def test_reconnecting_forgets_what_was_set():
    steps = [vall(), vvec("0=0.50000"), (b"V0?\n", HangUp()), *connect_steps()]
    steps += [vall(2.5), vvec("0=1.50000"), vvec("0=0.50000"), *SAFE]
    with chain_on(*steps) as chain:
        chain.set_voltages({0: 0.5})
        with pytest.raises(LinkError):
            chain.read_voltage(0)
        chain.reconnect()
        chain.set_voltages({0: 0.5})  # from the measured 2.5 V, although 0.5 V was set before


def test_raw_commands_go_through_the_link_and_make_set_values_unknown():
    steps = [(b"NCHAN?\n", b"8\n"), vall(), vvec("0=0.50000"), (b"V0=3\n", OK), vall(3.0), vvec("0=2.00000")]
    with chain_on(*steps, vvec("0=1.00000"), vvec("0=0.50000"), *SAFE) as chain:
        assert chain.ask("NCHAN?") == "8"
        chain.set_voltages({0: 0.5})
        chain.write("V0=3")
        chain.set_voltages({0: 0.5})
