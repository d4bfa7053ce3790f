"""Our drivers on other people's simulators: the pyvisa-sim files of QCoDeS (2600B) and QDevil (QDAC-II).

They answer a fixed list of commands, letter for letter. Readings do not follow the settings beyond the one that was
set, and the 2600B has no error queue. That is enough to show that connecting, identities, settings and readings are
spoken as these authors know them.
"""

import shutil
from contextlib import contextmanager
from importlib.resources import files

import pytest
import pyvisa

from drivers import Keithley2600, QDevilQDAC2
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import DeviceError, IdentityError, ReplyError

KEITHLEY = files("qcodes.instrument.sims") / "Keithley_2600.yaml"
QDAC = files("qcodes_contrib_drivers.sims") / "QDAC2.yaml"


@pytest.fixture
def opened(tmp_path):
    """Open a driver on a simulator; a copy of its file has a state of its own, which begins with the defaults."""

    @contextmanager
    def opener(driver, file, resource="GPIB::1::INSTR", **options):
        library = f"{shutil.copy(file, tmp_path)}@sim"
        try:
            source = driver("source", resource, visalib=library, timeout=0.5, **options)
            source.clock = SimulatedClock()
            try:
                yield source
            finally:
                source.close()
        finally:
            pyvisa.ResourceManager(library).close()

    return opener


def test_the_2600b_is_known_and_its_readings_are_read(opened):
    with opened(Keithley2600, KEITHLEY, channels=1, model="2601B") as source:
        idn = source.get_idn()
        assert (idn["vendor"], idn["model"]) == ("Keithley Instruments Inc.", "Model 2601B")
        assert (idn["serial"], idn["firmware"]) == ("1398687", "3.0.0")
        assert source.read_voltages().tolist() == [0.0]
        assert source.read_currents().tolist() == [0.0]
        assert source.nonzero_outputs() == {}


def test_a_2600b_of_another_size_is_refused(opened):
    with pytest.raises(IdentityError, match="2601B with 1 usable channels"), opened(Keithley2600, KEITHLEY):
        pass


def test_the_2600b_starts_as_a_current_source_and_is_driven_once_it_is_none(opened):
    with opened(Keithley2600, KEITHLEY, channels=1) as source:
        with pytest.raises(DeviceError, match="current source"):
            source.set_voltages({0: 1.0})
        source.write("smua.source.func=1")
        source.set_channel_limits(0, max_current=20e-3)
        source.set_voltages({0: 2.5})
        assert source.read_voltage(0) == 2.5
        assert source.ask("print(smua.source.limiti)") == "0.02"
        assert source.ask("print(smua.source.output)") == "1.000000e+00"
        source.make_safe()
        assert source.read_voltage(0) == 0.0
        assert source.ask("print(smua.source.output)") == "0.000000e+00"


def test_the_qdac_is_known_and_set(opened):
    with opened(QDevilQDAC2, QDAC, channels=1, voltage_range="low") as source:
        idn = source.get_idn()
        assert (idn["vendor"], idn["model"]) == ("QDevil", "QDAC-II")
        assert (idn["serial"], idn["firmware"]) == ("A001234", "11-1.14")
        assert source.read_voltages().tolist() == [0.0]
        source.set_voltages({0: 1.5})
        assert source.read_voltage(0) == 1.5
        assert source.nonzero_outputs() == {0: 1.5}
        assert source.ask("sens1:rang?") == "high"
        assert source.read_current(0) == 1e-3
        source.check_errors()
        source.make_safe()
        assert source.read_voltages().tolist() == [0.0]


def test_its_currents_of_a_tenth_of_an_ampere_are_not_believed(opened):
    """It understands the question for several channels; what it answers is ten times what a QDAC-II can drive.

    Compound questions for several setpoints are beyond it: it answers them one after the other.
    """
    with opened(QDevilQDAC2, QDAC, channels=3) as source:
        with pytest.raises(ReplyError, match=r"'0\.1' is more than 2 times full scale"):
            source.read_currents()
        assert [source.read_voltage(channel) for channel in range(3)] == [0.0, 0.0, 0.0]


def test_what_is_no_qdac_is_refused(opened):
    with pytest.raises(IdentityError, match="QAJAX"), opened(QDevilQDAC2, QDAC, "GPIB::2::INSTR"):
        pass
