"""Sweep and trigger settings of Santec TSL lasers."""

from qcodes.validators import Bool, Enum, Ints, Numbers

from drivers._parsing import parse_integer, parse_number
from drivers._santec_light import SantecLight
from drivers._santec_wire import (
    FLAG,
    LONGEST_LOG,
    SWEEP_STATES,
    Codec,
    choices,
    decimals,
    parse_step,
    parse_sweep_state,
    parse_wavelength,
)
from optinc_hw.errors import LimitError
from optinc_hw.units import m_to_nm, nm_to_m

SWEEP_MODES = ("step_one_way", "continuous_one_way", "step_two_way", "continuous_two_way")
TRIGGER_OUTPUTS = ("none", "stop", "start", "step")
TRIGGER_SPACINGS = ("wavelength", "time")
TRIGGER_LEVELS = ("high", "low")

_FASTEST_M_S = 1e-6
"""Faster than any model sweeps; the model's own speeds are checked before one is sent."""
_INTEGER = Codec(parse_integer, str)


class SantecSettings(SantecLight):
    """Parameters of sweeps and triggers, each sent and asked by itself; lengths in either command set."""

    def _add_sweep_parameters(self) -> None:
        wavelength = Codec(lambda text: parse_wavelength(text)[0], self._length_text)
        step = Codec(parse_step, self._length_text)
        long, short = Numbers(*self.plausible_wavelengths), Numbers(1e-13, 160e-9)
        pause = Numbers(0.0, 999.9)
        self._add_setting(
            "sweep_start", "Start of the sweep", "m", long, ":WAV:SWE:STAR", wavelength,
            "Control the wavelength at which a sweep begins.",
        )  # fmt: skip
        self._add_setting(
            "sweep_stop", "End of the sweep", "m", long, ":WAV:SWE:STOP", wavelength,
            "Control the wavelength at which a sweep ends.",
        )  # fmt: skip
        self._add_setting(
            "sweep_step", "Step of the sweep", "m", short, ":WAV:SWE:STEP", step,
            "Control the step of stepped sweeps.",
        )  # fmt: skip
        self._add_setting(
            "sweep_mode", "Sweep mode", "", Enum(*SWEEP_MODES), ":WAV:SWE:MOD", choices(SWEEP_MODES),
            "Control whether sweeps go in steps or continuously, and one way or there and back.",
        )  # fmt: skip
        self.sweep_speed = self.add_parameter(
            "sweep_speed",
            label="Speed of the sweep",
            unit="m/s",
            vals=Numbers(0.0, _FASTEST_M_S),
            get_cmd=lambda: nm_to_m(self._live_link().query(":WAV:SWE:SPE?", parse_number)),
            set_cmd=self._set_sweep_speed,
            docstring=f"Control the speed of continuous sweeps: {self._abilities.speeds_text}.",
        )
        self._add_setting(
            "sweep_dwell", "Time at each step", "s", pause, ":WAV:SWE:DWEL", decimals(1),
            "Control how long a stepped sweep stays at each step, tuning not counted, in steps of 0.1 s.",
        )  # fmt: skip
        self._add_setting(
            "sweep_delay", "Time between sweeps", "s", pause, ":WAV:SWE:DEL", decimals(1),
            "Control the time between repeated sweeps, in steps of 0.1 s.",
        )  # fmt: skip
        self._add_setting(
            "sweep_cycles", "Number of sweeps", "", Ints(0, 999), ":WAV:SWE:CYCL", _INTEGER,
            "Control how many sweeps follow one another.",
        )  # fmt: skip
        self._add_reading(
            "sweep_count", "Completed sweeps", Ints(min_value=0), ":WAV:SWE:COUN?", parse_integer,
            "Get how many sweeps have come to their end.",
        )  # fmt: skip
        self._add_reading(
            "sweep_state", "State of the sweep", Enum(*SWEEP_STATES.values()), ":WAV:SWE?", parse_sweep_state,
            "Get whether a sweep is stopped, preparing, waiting for a trigger or running.",
        )  # fmt: skip
        self._add_reading(
            "log_points", "Points in the log", Ints(0, LONGEST_LOG), ":READ:POIN?", parse_integer,
            "Get how many points the log of the latest sweep has.",
        )  # fmt: skip
        if self._abilities.two_command_sets:
            self._add_reading(
                "sweep_shortest", "Shortest wavelength of a sweep", long, ":WAV:SWE:RANG:MIN?", wavelength.parse,
                "Get the shortest wavelength that a sweep can have at its present speed.", "m",
            )  # fmt: skip
            self._add_reading(
                "sweep_longest", "Longest wavelength of a sweep", long, ":WAV:SWE:RANG:MAX?", wavelength.parse,
                "Get the longest wavelength that a sweep can have at its present speed.", "m",
            )  # fmt: skip

    def _add_trigger_parameters(self) -> None:
        step = Codec(parse_step, self._length_text)
        self._add_setting(
            "trigger_output", "Trigger output", "", Enum(*TRIGGER_OUTPUTS), ":TRIG:OUTP", choices(TRIGGER_OUTPUTS),
            "Control when a trigger goes out during a sweep; the log has one point for each trigger of step.",
        )  # fmt: skip
        self._add_setting(
            "trigger_step", "Step of the trigger output", "m", Numbers(1e-13, 160e-9), ":TRIG:OUTP:STEP", step,
            "Control the distance of the triggers that go out.",
        )  # fmt: skip
        self._add_setting(
            "trigger_spacing", "Spacing of the trigger output", "", Enum(*TRIGGER_SPACINGS), ":TRIG:OUTP:SETT",
            choices(TRIGGER_SPACINGS), "Control whether triggers go out at equal wavelength or time intervals.",
        )  # fmt: skip
        self._add_setting(
            "trigger_input", "Trigger input", "", Bool(), ":TRIG:INP:EXT", FLAG,
            "Control whether an edge at the trigger input starts a sweep.",
        )  # fmt: skip
        self._add_setting(
            "trigger_input_level", "Active level of the trigger input", "", Enum(*TRIGGER_LEVELS), ":TRIG:INP:ACT",
            choices(TRIGGER_LEVELS), "Control the active level of the trigger input.",
        )  # fmt: skip
        self._add_setting(
            "trigger_standby", "Trigger standby", "", Bool(), ":TRIG:INP:STAN", FLAG,
            "Control whether a sweep that was started waits for a trigger.",
        )  # fmt: skip
        self._add_setting(
            "trigger_through", "Trigger through", "", Bool(), ":TRIG:THR", FLAG,
            "Control whether triggers that come in go out again.",
        )  # fmt: skip

    def _set_sweep_speed(self, speed_m_s: float) -> None:
        self._check_speed(speed_m_s)
        with self._live_link().lock:
            self._write_setting(":WAV:SWE:SPE", self._speed_text(speed_m_s), parse_number, "nm/s")

    def _speed_text(self, speed_m_s: float) -> str:
        return f"{m_to_nm(speed_m_s):.1f}".removesuffix(".0")

    def _check_speed(self, speed_m_s: float) -> None:
        if not self._abilities.allows_speed(speed_m_s):
            raise LimitError(
                f"{self.name}: sweep speed cannot be {speed_m_s:g} m/s; the {self.model} has "
                f"{self._abilities.speeds_text}. Nothing was changed"
            )
