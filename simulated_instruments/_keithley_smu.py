"""One source-measure unit of a simulated Keithley 2600B: its attributes and functions in TSP."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simulated_instruments._source_channels import SourceChannels
from simulated_instruments._tsp import Attribute, Function, TspError, Value, constant, runtime_error

VOLTAGE_LIMIT, CURRENT_LIMIT, READING_OVERFLOW = 1, 2, 128
"""Bits of the measurement status."""

_AMPERES, _VOLTS = 0, 1
_OVERFLOW = 9.91e37
_TOO_SMALL, _TOO_BIG, _NOT_POSSIBLE = 1101, 1102, 1106
_HEADROOM = 1.01
"""A range can source and measure a little beyond its name."""
_STEPS_PER_RANGE = 40_000


@dataclass(frozen=True)
class SmuModel:
    """What sets the channels of a family of models apart.

    Attributes
    ----------
    voltage_ranges_v, current_ranges_a
        Ranges in V and A, in rising order; the last is full scale.
    least_limit_v, least_limit_a
        Lowest compliance in V and A.
    default_limit_v, default_limit_a
        Compliance after a reset in V and A.
    """

    voltage_ranges_v: tuple[float, ...]
    current_ranges_a: tuple[float, ...]
    least_limit_v: float
    least_limit_a: float
    default_limit_v: float
    default_limit_a: float


class Smu:
    """One channel, ``smua`` or ``smub``.

    Parameters
    ----------
    name
        Its name in TSP.
    index
        Its 0-based channel.
    model
        What it can do.
    channels
        The outputs of the instrument.
    """

    def __init__(self, name: str, index: int, model: SmuModel, channels: SourceChannels) -> None:
        self.name = name
        self._index = index
        self._model = model
        self._channels = channels
        self._set_defaults()

    def reset(self) -> None:
        """Go back to the settings after power-on; the output goes off."""
        self._set_defaults()
        source = self._channels[self._index]
        source.on, source.regulates_current = False, False
        source.voltage_v, source.current_a = 0.0, 0.0
        source.max_voltage_v, source.max_current_a = self._model.default_limit_v, self._model.default_limit_a
        self._apply()

    def _set_defaults(self) -> None:
        self._plain: dict[str, float] = dict.fromkeys(_PLAIN, 0.0) | {
            "measure.nplc": 1.0, "measure.count": 1.0, "measure.autozero": 2.0
        }  # fmt: skip
        self._automatic = dict.fromkeys(("source.v", "source.i", "measure.v", "measure.i"), True)
        self._ranges = {key: self._spans(key)[0] for key in self._automatic}
        self._overflow = False

    def attributes(self) -> Mapping[str, Attribute]:
        """Attributes by name."""
        found = {
            "source.func": Attribute(lambda: float(self._function), self._put_function),
            "source.output": Attribute(lambda: float(self._channels[self._index].on), self._put_output),
            "source.levelv": Attribute(lambda: self._channels[self._index].voltage_v, self._put_level_v),
            "source.leveli": Attribute(lambda: self._channels[self._index].current_a, self._put_level_a),
            "source.limitv": Attribute(lambda: self._channels[self._index].max_voltage_v, self._put_limit_v),
            "source.limiti": Attribute(lambda: self._channels[self._index].max_current_a, self._put_limit_a),
            "source.compliance": Attribute(lambda: self._channels.limited(self._index)),
        }
        for key in self._automatic:
            part, _, quantity = key.partition(".")
            found[f"{part}.range{quantity}"] = self._range_attribute(key)
            found[f"{part}.autorange{quantity}"] = self._automatic_attribute(key)
        for key, (lowest, highest) in _PLAIN.items():
            found[key] = self._plain_attribute(key, lowest, highest)
        found |= {key: constant(value) for key, value in _CONSTANTS.items()}
        return {f"{self.name}.{key}": attribute for key, attribute in found.items()} | {
            f"status.measurement.instrument.{self.name}.condition": Attribute(lambda: float(self._condition()))
        }

    def functions(self) -> Mapping[str, Function]:
        """Functions by name."""
        found: dict[str, Callable[[], Sequence[Value]]] = {
            "measure.v": lambda: (self._measured_v(),),
            "measure.i": lambda: (self._measured_a(),),
            "measure.r": lambda: (_quotient(self._measured_v(), self._measured_a()),),
            "measure.p": lambda: (_product(self._measured_v(), self._measured_a()),),
            "measure.iv": lambda: (self._measured_a(), self._measured_v()),
            "reset": self._reset_by_name,
        }
        return {f"{self.name}.{key}": _without_arguments(function) for key, function in found.items()}

    @property
    def _function(self) -> int:
        return _AMPERES if self._channels[self._index].regulates_current else _VOLTS

    def _reset_by_name(self) -> Sequence[Value]:
        self.reset()
        return ()

    def _apply(self) -> None:
        self._channels[self._index].step_v = self._range("source.v") / _STEPS_PER_RANGE
        self._channels.apply(self._index)

    def _range(self, key: str) -> float:
        """Return the range in use: the one that was chosen, or the lowest that fits."""
        if not self._automatic[key]:
            return self._ranges[key]
        source = self._channels[self._index]
        if key.startswith("source"):
            return self._lowest_range(key, source.voltage_v if key.endswith("v") else source.current_a)
        return self._lowest_range(key, self._true_value(key))

    def _lowest_range(self, key: str, value: float) -> float:
        spans = self._spans(key)
        return next((span for span in spans if abs(value) <= _HEADROOM * span), spans[-1])

    def _spans(self, key: str) -> tuple[float, ...]:
        return self._model.voltage_ranges_v if key.endswith("v") else self._model.current_ranges_a

    def _true_value(self, key: str) -> float:
        if key.endswith("v"):
            return float(self._channels.read_voltages()[self._index])
        return float(self._channels.read_currents()[self._index])

    def _measured_v(self) -> float:
        return self._measured("measure.v")

    def _measured_a(self) -> float:
        return self._measured("measure.i")

    def _measured(self, key: str) -> float:
        value = self._true_value(key)
        span = self._spans(key)[-1] if self._automatic[key] else self._ranges[key]
        self._overflow = abs(value) > _HEADROOM * span
        return _OVERFLOW if self._overflow else value

    def _condition(self) -> int:
        bits = READING_OVERFLOW if self._overflow else 0
        if self._channels.limited(self._index):
            bits |= CURRENT_LIMIT if self._function == _VOLTS else VOLTAGE_LIMIT
        return bits

    def _put_function(self, value: Value) -> None:
        function = _number(value, _AMPERES, _VOLTS)
        self._channels[self._index].regulates_current = function == _AMPERES
        self._apply()

    def _put_output(self, value: Value) -> None:
        self._channels[self._index].on = _number(value, 0.0, 2.0) == 1.0
        self._apply()

    def _put_level_v(self, value: Value) -> None:
        self._channels[self._index].voltage_v = self._level("source.v", value)
        self._apply()

    def _put_level_a(self, value: Value) -> None:
        self._channels[self._index].current_a = self._level("source.i", value)
        self._apply()

    def _level(self, key: str, value: Value) -> float:
        highest = _HEADROOM * (self._spans(key)[-1] if self._automatic[key] else self._ranges[key])
        return _number(value, -highest, highest)

    def _put_limit_v(self, value: Value) -> None:
        limit = _number(value, self._model.least_limit_v, self._model.voltage_ranges_v[-1])
        self._channels[self._index].max_voltage_v = limit
        self._apply()

    def _put_limit_a(self, value: Value) -> None:
        limit = _number(value, self._model.least_limit_a, self._model.current_ranges_a[-1])
        self._channels[self._index].max_current_a = limit
        self._apply()

    def _range_attribute(self, key: str) -> Attribute:
        def put(value: Value) -> None:
            widest = self._spans(key)[-1]
            self._ranges[key] = self._lowest_range(key, _number(value, -widest, widest))
            self._automatic[key] = False
            self._apply()

        return Attribute(lambda: self._range(key), put)

    def _automatic_attribute(self, key: str) -> Attribute:
        def put(value: Value) -> None:
            on = _number(value, 0.0, 1.0) == 1.0
            self._ranges[key] = self._range(key)
            self._automatic[key] = on
            self._apply()

        return Attribute(lambda: float(self._automatic[key]), put)

    def _plain_attribute(self, key: str, lowest: float, highest: float) -> Attribute:
        def put(value: Value) -> None:
            self._plain[key] = _number(value, lowest, highest)

        return Attribute(lambda: self._plain[key], put)


_PLAIN: Mapping[str, tuple[float, float]] = {
    "sense": (0.0, 3.0),
    "source.delay": (-1.0, 1e4),
    "source.offmode": (0.0, 2.0),
    "source.settling": (0.0, 132.0),
    "source.sink": (0.0, 1.0),
    "measure.nplc": (0.001, 25.0),
    "measure.delay": (-1.0, 1e4),
    "measure.count": (1.0, 60000.0),
    "measure.autozero": (0.0, 2.0),
}
"""Settings that are only remembered: lowest and highest value."""

_CONSTANTS: Mapping[str, float] = {
    "OUTPUT_DCAMPS": 0.0,
    "OUTPUT_DCVOLTS": 1.0,
    "OUTPUT_OFF": 0.0,
    "OUTPUT_ON": 1.0,
    "SENSE_LOCAL": 0.0,
    "SENSE_REMOTE": 1.0,
    "AUTORANGE_OFF": 0.0,
    "AUTORANGE_ON": 1.0,
}


def _number(value: Value, lowest: float, highest: float) -> float:
    """Return a number within limits."""
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise runtime_error("number expected")
    if value < lowest:
        raise TspError(_TOO_SMALL, "Parameter too small")
    if value > highest:
        raise TspError(_TOO_BIG, "Parameter too big")
    return float(value)


def _without_arguments(function: Callable[[], Sequence[Value]]) -> Function:
    def call(arguments: list[Value]) -> Sequence[Value]:
        if arguments:
            raise TspError(_NOT_POSSIBLE, "Too many parameters")
        return function()

    return call


def _quotient(volts: float, amperes: float) -> float:
    return _OVERFLOW if _OVERFLOW in (volts, amperes) or amperes == 0.0 else volts / amperes


def _product(volts: float, amperes: float) -> float:
    return _OVERFLOW if _OVERFLOW in (volts, amperes) else volts * amperes
