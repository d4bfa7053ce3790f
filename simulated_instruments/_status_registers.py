"""SCPI status registers: conditions, filters, event latches and enable masks."""

from collections.abc import Mapping

from simulated_instruments._scpi import Handler, Quantity, Reply, plain, query

_MASK = Quantity(0, 32767, 0, {"": 1.0})


class StatusRegister:
    """A condition with the filters, the event latch and the enable mask of SCPI."""

    def __init__(self) -> None:
        self.condition, self.event, self.enable = 0, 0, 0
        self.positive, self.negative = 32767, 0

    def update(self, bit: int, *, on: bool) -> None:
        """Set or clear a bit of the condition, and latch the change if the filters let it through."""
        before = self.condition
        self.condition = before | bit if on else before & ~bit
        self.event |= (~before & self.condition & self.positive) | (before & ~self.condition & self.negative)

    def take_event(self) -> str:
        """Return the latched events and forget them."""
        event, self.event = self.event, 0
        return str(event)

    def set_mask(self, field: str, arguments: list[str]) -> Reply:
        """Set ``enable``, ``positive`` or ``negative`` to the only argument."""
        setattr(self, field, round(_MASK.parse(arguments)))
        return None


class StatusRegisters:
    """The status registers of an instrument.

    Parameters
    ----------
    nodes
        Pattern of each register's header node, such as ``OPERation``, by the register's name.
    """

    def __init__(self, nodes: Mapping[str, str]) -> None:
        self._nodes = dict(nodes)
        self.reset()

    def __getitem__(self, name: str) -> StatusRegister:
        return self._registers[name]

    def reset(self) -> None:
        """Bring all registers into the state after switching on."""
        self._registers = {name: StatusRegister() for name in self._nodes}

    def clear_events(self) -> None:
        """Forget all latched events."""
        for register in self._registers.values():
            register.event = 0

    def preset(self) -> Reply:
        """Disable all events and let all rising conditions through."""
        for register in self._registers.values():
            register.enable, register.positive, register.negative = 0, 32767, 0
        return None

    def commands(self) -> dict[str, Handler]:
        """Return the handlers of ``STATus:...``."""
        commands: dict[str, Handler] = {"STATus:PRESet": query(self.preset)}
        for name, node in self._nodes.items():
            commands |= self._commands_of(name, f"STATus:{node}")
        return commands

    def _commands_of(self, name: str, head: str) -> dict[str, Handler]:
        def change(field: str) -> Handler:
            return plain(lambda arguments: self._registers[name].set_mask(field, arguments))

        def show(field: str) -> Handler:
            return query(lambda: str(getattr(self._registers[name], field)))

        masks = {"ENABle": "enable", "PTRansition": "positive", "NTRansition": "negative"}
        return (
            {f"{head}:{word}": change(field) for word, field in masks.items()}
            | {f"{head}:{word}?": show(field) for word, field in masks.items()}
            | {f"{head}:CONDition?": show("condition")}
            | {f"{head}[:EVENt]?": query(lambda: self._registers[name].take_event())}
        )
