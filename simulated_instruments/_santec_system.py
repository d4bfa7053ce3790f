"""System commands of the simulated Santec lasers: command set, communication, errors, alerts, power."""

from collections.abc import Callable, Mapping

from simulated_instruments._santec_values import LEGACY, SCPI, SantecModel
from simulated_instruments._scpi import (
    OUT_OF_RANGE,
    PARAMETER_NOT_ALLOWED,
    ErrorQueue,
    Handler,
    Reply,
    ScpiError,
    choice,
    number,
    one_argument,
    plain,
    query,
)

_ADDRESSES = {"IPADdress": "192.168.1.100", "SMASk": "255.255.255.0", "DGATeway": "192.168.1.1"}
_MAC = "00-25-2C-00-00-01"
_PORT, _GPIB_ADDRESS, _BRIGHTNESS = 5000, 1, 100


class SystemUnit:
    """What is not light.

    Parameters
    ----------
    model
        What the laser can do.
    errors
        The error queue.
    restart
        Starts the laser anew.
    """

    def __init__(self, model: SantecModel, errors: ErrorQueue, restart: Callable[[], None]) -> None:
        self._model = model
        self._errors = errors
        self._restart = restart
        self.locked = False
        self.reset()

    def reset(self) -> None:
        """Go back to the state after power-on; the interlock is outside and stays as it is."""
        self.command_set = LEGACY
        self.shut_down = False
        self._delimiter = 0
        self._addresses = dict(_ADDRESSES)
        self._integers = {"port": _PORT, "gpib": _GPIB_ADDRESS, "brightness": _BRIGHTNESS}

    def commands(self) -> dict[str, Handler]:
        """Return the handlers."""
        link = "SYSTem:COMMunicate"
        commands: dict[str, Handler] = {
            "*IDN?": query(lambda: self._model.identity),
            "*CLS": query(self._errors.clear),
            "SYSTem:ERRor[:NEXT]?": query(self._errors.pop),
            "SYSTem:ALERt?": query(self._alert),
            "SYSTem:LOCK?": query(lambda: str(int(self.locked))),
            "SYSTem:VERSion?": query(lambda: self._model.identity.rpartition(",")[2]),
            f"{link}:GPIB:DELimiter": plain(self._set_delimiter),
            f"{link}:GPIB:DELimiter?": query(lambda: str(self._delimiter)),
            f"{link}:ETHernet:MACaddress?": query(lambda: _MAC),
            **self._integer(f"{link}:GPIB:ADDRess", "gpib", 1, 30),
            **self._integer(f"{link}:ETHernet:PORT", "port", 0, 65535),
            **self._integer("DISPlay:BRIGhtness", "brightness", 0, 100),
            "SPECial:REBoot": query(self._restart),
            "SPECial:SHUTdown": query(self._shut_down),
        }
        for name in _ADDRESSES:
            commands |= self._address(f"{link}:ETHernet:{name}", name)
        if self._model.two_command_sets:
            commands |= {
                f"{link}:CODe": plain(self._set_command_set),
                f"{link}:CODe?": query(lambda: str(self.command_set)),
                "SYSTem:CODe?": query(lambda: str(self.command_set)),
            }
        return commands

    def _alert(self) -> str:
        return '7,"Interlock detection"' if self.locked else "No alerts"

    def _shut_down(self) -> Reply:
        self._restart()  # everything that is lost without power
        self.shut_down = True
        return None

    def _set_command_set(self, arguments: list[str]) -> Reply:
        self.command_set = choice(arguments, {"0": LEGACY, "1": SCPI})
        return None

    def _set_delimiter(self, arguments: list[str]) -> Reply:
        self._delimiter = choice(arguments, {"0": 0, "1": 1, "2": 2, "3": 3})
        return None

    def _integer(self, header: str, name: str, lowest: int, highest: int) -> Mapping[str, Handler]:
        def change(arguments: list[str]) -> Reply:
            value, _ = number(one_argument(arguments), {"": 1.0})
            if not (lowest <= value <= highest and value == int(value)):
                raise ScpiError(*OUT_OF_RANGE)
            self._integers[name] = int(value)
            return None

        return {header: plain(change), f"{header}?": query(lambda: str(self._integers[name]))}

    def _address(self, header: str, name: str) -> Mapping[str, Handler]:
        def change(arguments: list[str]) -> Reply:
            text = one_argument(arguments)
            parts = text.split(".")
            if len(parts) != 4 or not all(part.isdigit() and int(part) <= 255 for part in parts):
                raise ScpiError(*PARAMETER_NOT_ALLOWED)
            self._addresses[name] = text
            return None

        return {header: plain(change), f"{header}?": query(lambda: self._addresses[name])}
