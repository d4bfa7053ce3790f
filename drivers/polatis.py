"""Polatis (HUBER+SUHNER) optical cross-connects with the ``:OXC`` command tree, which DiCon's GP750 shares."""

import re
from collections.abc import Mapping
from typing import ClassVar

from qcodes.instrument import InstrumentBaseKWArgs
from qcodes.validators import Ints, Numbers
from typing_extensions import Unpack

from drivers._parsing import parse_flag
from drivers._scpi import ScpiInstrument
from drivers._switch import SwitchInstrument
from drivers.protocols import SimulatedAs
from optinc_hw.errors import IdentityError, LimitError

_MODEL = re.compile(r".*\d+x\d+.*|GP750.*")
_SIZE = re.compile(r"\D*(\d+)\s*[,x]\s*(\d+)\D*", re.ASCII)
_PORT = re.compile(r'"(\d*)"', re.ASCII)
_POLL_S = 0.005


class PolatisOXC(SwitchInstrument, ScpiInstrument):
    """Matrix switch of N inputs and M outputs; implements :class:`drivers.protocols.Switch`.

    On the wire inputs are numbered 1..N and outputs N+1..N+M. Connecting only asks (``*idn?``, ``:oxc:swit:size?``);
    closing leaves the connections as they are.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        VISA resource, such as ``TCPIP0::192.168.1.120::5025::SOCKET``.
    ports
        Number of inputs that the switch must have; not checked when left out.
    timeout
        Time in s that a complete reply may take.
    switching_deadline
        Time in s after which a switch that still reports to be busy has failed.
    settle_time
        Time in s to wait after the switch reports the new position, on the instrument's clock.
    visalib
        pyvisa library.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    LinkError
        If the switch cannot be reached or does not answer.
    IdentityError
        If something else answers, or the switch has another number of inputs.
    """

    simulated_as: ClassVar = SimulatedAs("polatis_oxc", "ports", 24)
    _error_query = ":syst:err?"

    def __init__(
        self,
        name: str,
        address: str,
        *,
        ports: int | None = None,
        timeout: float = 2.0,
        switching_deadline: float = 1.0,
        settle_time: float = 0.0,
        visalib: str = "@py",
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        super().__init__(name, **kwargs)
        self.address = address
        self.settle_time = settle_time
        if not 0.0 < switching_deadline < 3600.0:
            raise LimitError(f"{name}: switching_deadline cannot be {switching_deadline} s; give 0 to 3600 s")
        self._deadline_s = switching_deadline
        self._wanted_inputs = ports
        self._attach(self._open_link(address, visalib, b"\n", timeout))
        self.connected_outputs = [
            self.add_parameter(
                f"input_{index}",
                label=f"Output of input {index}",
                unit="",
                vals=Ints(-1, self._outputs - 1),
                get_cmd=lambda index=index: self._output_of(index),
                set_cmd=lambda output, index=index: self._set_output_of(index, output),
                docstring="Control the 0-based output port that this input is connected with; -1 is none.",
            )
            for index in range(self._inputs)
        ]
        self.inputs = self.add_parameter(
            "inputs",
            label="Number of inputs",
            unit="",
            vals=Numbers(1),
            get_cmd=lambda: self._ask_size()[0],
            docstring="Get the number of inputs.",
        )

    @property
    def input_count(self) -> int:
        """Number of inputs."""
        return self._inputs

    @property
    def output_count(self) -> int:
        """Number of outputs."""
        return self._outputs

    def connect(self, input_port: int, output_port: int) -> None:
        """Connect an input with an output (0-based), dropping what either was connected with, and wait.

        Raises
        ------
        LimitError
            If a port does not exist; nothing was changed.
        DeviceError
            If the switch refuses, stays busy beyond the deadline, or stands otherwise afterwards.
        """
        input_port = self._checked("input", input_port, self._inputs)
        output_port = self._checked("output", output_port, self._outputs)
        link = self._live_link()
        ingress, egress = input_port + 1, self._inputs + output_port + 1
        with link.lock:
            if self._peer(ingress) != egress:
                self._drop(ingress)
                self._drop(egress)
                self._write_checked(f":oxc:swit:conn:add (@{ingress}),(@{egress})")
            self._wait_idle()
            if self._peer(ingress) != egress:
                raise link.device_error(
                    f"input {input_port} is not connected with output {output_port} although that was set; check that "
                    f"nobody else uses the switch"
                )
            self._note_connections({input_port: output_port})
        self.clock.sleep(self.settle_time)

    def disconnect(self, input_port: int) -> None:
        """Drop the connection of an input (0-based), if it has one, and wait.

        Raises
        ------
        LimitError
            If the port does not exist; nothing was changed.
        DeviceError
            If the switch refuses, stays busy beyond the deadline, or stands otherwise afterwards.
        """
        input_port = self._checked("input", input_port, self._inputs)
        link = self._live_link()
        with link.lock:
            self._drop(input_port + 1)
            self._wait_idle()
            if self._peer(input_port + 1) is not None:
                raise link.device_error(
                    f"input {input_port} is still connected although that was dropped; check that nobody else uses "
                    f"the switch"
                )
            self.connected_outputs[input_port].cache.set(-1)
        self.clock.sleep(self.settle_time)

    def disconnect_all(self) -> None:
        """Drop all connections; raises DeviceError if the switch refuses."""
        with self._live_link().lock:
            self._write_checked(":oxc:swit:disc:all")
            self._wait_idle()
            for parameter in self.connected_outputs:
                parameter.cache.set(-1)

    def connections(self) -> dict[int, int]:
        """Ask for the output (0-based) of each connected input; an exchange for each input."""
        outputs = [parameter.get() for parameter in self.connected_outputs]
        return {index: output for index, output in enumerate(outputs) if output >= 0}

    def _set_output_of(self, index: int, output: int) -> None:
        if output >= 0:
            self.connect(index, output)
        else:
            self.disconnect(index)

    def _output_of(self, index: int) -> int:
        peer = self._peer(index + 1)
        return -1 if peer is None else peer - self._inputs - 1

    def _peer(self, port: int) -> int | None:
        """Ask which port (1-based, as on the wire) ``port`` is connected with."""
        return self._live_link().query(f":oxc:swit:conn:port? {port}", self._parse_port)

    def _parse_port(self, text: str) -> int | None:
        match = _PORT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no quoted port number")
        if not match[1]:
            return None
        if not 1 <= int(match[1]) <= self._inputs + self._outputs:
            raise ValueError(f"{text!r} is no port of a switch of {self._inputs} x {self._outputs} ports")
        return int(match[1])

    def _drop(self, port: int) -> None:
        peer = self._peer(port)
        if peer is not None:
            ingress, egress = min(port, peer), max(port, peer)
            self._write_checked(f":oxc:swit:conn:sub (@{ingress}),(@{egress})")
            self.connected_outputs[ingress - 1].cache.set(-1)

    def _wait_idle(self) -> None:
        link = self._live_link()
        end = self.clock.now() + self._deadline_s
        while not link.query("*OPC?", parse_flag):
            if self.clock.now() >= end:
                raise link.device_error(f"the switch is still moving after {self._deadline_s:g} s")
            self.clock.sleep(_POLL_S)

    def _note_connections(self, made: Mapping[int, int]) -> None:
        for index, output in made.items():
            for parameter in self.connected_outputs:
                if parameter.cache.get(get_if_invalid=False) == output:
                    parameter.cache.set(-1)
            self.connected_outputs[index].cache.set(output)

    def _ask_size(self) -> tuple[int, int]:
        return self._live_link().query(":oxc:swit:size?", _parse_size)

    def _identify(self) -> None:
        self._check_identity(self.address, ("Polatis", "HUBER+SUHNER", "DiCon"), _MODEL)
        self._inputs, self._outputs = self._ask_size()
        if self._wanted_inputs not in (None, self._inputs):
            raise IdentityError(
                f"{self.name} at {self.address}: the switch has {self._inputs} inputs, but {self._wanted_inputs} are "
                f"expected; correct ports or the address"
            )

    def _snapshot_complete(self) -> bool:
        parameters = (self.IDN, self.inputs, *self.connected_outputs)
        return all(parameter.cache.valid for parameter in parameters)

    def _refresh(self) -> None:
        for parameter in (self.IDN, self.inputs, *self.connected_outputs):
            parameter.get()


def _parse_size(text: str) -> tuple[int, int]:
    match = _SIZE.fullmatch(text)
    if match is None or int(match[1]) < 1 or int(match[2]) < 1:
        raise ValueError(f"{text!r} is no size of a switch like '24,24'")
    return int(match[1]), int(match[2])
