"""Commands for the functions of a simulated Keysight power meter."""

from collections.abc import Callable, Mapping

from simulated_instruments._keysight_functions import (
    LOGGING,
    MINMAX,
    MOST_SAMPLES,
    SETTINGS_CONFLICT,
    STABILITY,
    FunctionParameters,
    MeterFunctions,
)
from simulated_instruments._keysight_ports import AVERAGING, MeterPort
from simulated_instruments._parameters import FloatArray
from simulated_instruments._scpi import (
    ILLEGAL_VALUE,
    MISSING_PARAMETER,
    OUT_OF_RANGE,
    PARAMETER_NOT_ALLOWED,
    TIME_UNITS,
    Handler,
    Quantity,
    Reply,
    ScpiError,
    block,
    exponential,
    no_arguments,
)

_SAMPLES = Quantity(1, MOST_SAMPLES, 100, {"": 1.0})
_LONGEST_S = 1e6
_SPAN = Quantity(AVERAGING.minimum, _LONGEST_S, 10.0, TIME_UNITS)
_FUNCTIONS = {
    "LOGG": LOGGING,
    "LOGGING": LOGGING,
    "STAB": STABILITY,
    "STABILITY": STABILITY,
    "MINM": MINMAX,
    "MINMAX": MINMAX,
}
_ACTIONS = {"STAR": True, "START": True, "STOP": False}
_WINDOWS = {"CONT": "CONT", "CONTINUOUS": "CONT", "WIND": "WIND", "WINDOW": "WIND", "REFR": "REFR", "REFRESH": "REFR"}

PortOf = Callable[[tuple[int, ...]], MeterPort]


def function_commands(
    functions: MeterFunctions, port_of: PortOf, report: Callable[[FloatArray], None]
) -> Mapping[str, Handler]:
    """Return the handlers of ``SENSe:FUNCtion``.

    Parameters
    ----------
    functions
        The functions.
    port_of
        Finds the port of a header's suffixes, or raises ScpiError.
    report
        Takes note of codes among the values of a result.
    """

    def change(function: str, parse: Callable[[list[str]], FunctionParameters]) -> Handler:
        def handler(suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
            port_of(suffixes)  # whichever it is: all ports share the parameters
            functions.set_parameters(function, parse(arguments))
            return None

        return handler

    def show(function: str, write: Callable[[FunctionParameters], str]) -> Handler:
        def handler(suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
            no_arguments(arguments)
            port_of(suffixes)
            return write(functions.parameters[function])

        return handler

    def change_state(suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        port = port_of(suffixes)
        name, action = _several(arguments, 2)
        if name not in _FUNCTIONS or action not in _ACTIONS:
            raise ScpiError(*ILLEGAL_VALUE)
        if _ACTIONS[action]:
            functions.start(port, _FUNCTIONS[name])
        else:
            functions.stop(port)
        return None

    def state(suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        return functions.state(port_of(suffixes))

    def result(suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        port = port_of(suffixes)
        values = port.all_in_unit(functions.result(port))
        report(values)
        return block(values.tobytes())

    head = "SENSe#[:CHANnel#]:FUNCtion"
    return {
        f"{head}:PARameter:LOGGing": change(LOGGING, _parse_logging),
        f"{head}:PARameter:LOGGing?": show(LOGGING, _write_logging),
        f"{head}:PARameter:STABility": change(STABILITY, _parse_stability),
        f"{head}:PARameter:STABility?": show(STABILITY, _write_stability),
        f"{head}:PARameter:MINMax": change(MINMAX, _parse_window),
        f"{head}:PARameter:MINMax?": show(MINMAX, lambda parameters: f"{parameters.window},{parameters.samples:+d}"),
        f"{head}:STATe": change_state,
        f"{head}:STATe?": state,
        f"{head}:RESult?": result,
    }


def _parse_logging(arguments: list[str]) -> FunctionParameters:
    samples, averaging = _several(arguments, 2)
    return FunctionParameters(_whole(samples), averaging_s=AVERAGING.parse([averaging]))


def _write_logging(parameters: FunctionParameters) -> str:
    return f"{parameters.samples:+d},{exponential(parameters.averaging_s or 0.0)}"


def _parse_stability(arguments: list[str]) -> FunctionParameters:
    total, period, averaging = _several(arguments, 3)
    total_s, period_s, averaging_s = _SPAN.parse([total]), _SPAN.parse([period]), AVERAGING.parse([averaging])
    if period_s < averaging_s or total_s < period_s:
        raise ScpiError(*SETTINGS_CONFLICT)
    samples = round(total_s / period_s)
    if samples > MOST_SAMPLES:
        raise ScpiError(*SETTINGS_CONFLICT)
    return FunctionParameters(samples, averaging_s=averaging_s, period_s=period_s)


def _write_stability(parameters: FunctionParameters) -> str:
    period_s, averaging_s = parameters.period_s or 0.0, parameters.averaging_s or 0.0
    return ",".join(exponential(value) for value in (parameters.samples * period_s, period_s, averaging_s))


def _parse_window(arguments: list[str]) -> FunctionParameters:
    window, samples = _several(arguments, 2)
    if window not in _WINDOWS:
        raise ScpiError(*ILLEGAL_VALUE)
    return FunctionParameters(_whole(samples), window=_WINDOWS[window])


def _several(arguments: list[str], count: int) -> list[str]:
    """Return exactly ``count`` arguments in upper case."""
    if len(arguments) < count or not all(arguments):
        raise ScpiError(*MISSING_PARAMETER)
    if len(arguments) > count:
        raise ScpiError(*PARAMETER_NOT_ALLOWED)
    return [argument.upper() for argument in arguments]


def _whole(text: str) -> int:
    value = _SAMPLES.parse([text])
    if value != int(value):
        raise ScpiError(*OUT_OF_RANGE)
    return int(value)
