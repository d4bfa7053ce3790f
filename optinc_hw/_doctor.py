"""What ``optinc doctor`` finds out about this computer; nothing is opened or changed."""

import importlib.metadata
import os
import platform
from dataclasses import dataclass

import optinc_hw
from optinc_hw._shadow import check_packages_not_shadowed
from optinc_hw.errors import OptincError

_REQUIRED = (
    "filelock", "h5netcdf", "matplotlib", "numba", "numpy", "pydantic", "pyserial", "pyvisa", "pyvisa-py", "qcodes",
    "rich", "ruamel.yaml", "safetensors", "scipy", "threadpoolctl", "torch", "typer", "xarray",
)  # fmt: skip
_OPTIONAL = (("scikit-learn", "optinc demo: pip install 'optinc-hw[demo]'"),)


@dataclass(frozen=True)
class Package:
    """A package that optinc-hw uses: installed version or None, and what an optional one is for."""

    name: str
    version: str | None
    needed_for: str | None = None

    @property
    def missing(self) -> bool:
        """Whether it is required and not installed."""
        return self.version is None and self.needed_for is None


@dataclass(frozen=True)
class SerialPort:
    """A serial port of this computer."""

    device: str
    description: str
    accessible: bool


@dataclass(frozen=True)
class VisaBackend:
    """A backend that pyvisa knows; ``detail`` says what it is or why it cannot be used."""

    name: str
    usable: bool
    detail: str


@dataclass(frozen=True)
class Diagnosis:
    """Everything that ``optinc doctor`` shows.

    Parameters
    ----------
    version, python, system
        Versions of optinc-hw and Python, and the operating system.
    packages
        Required packages, then optional ones.
    serial_ports, visa_backends
        What instruments could be reached through.
    problems
        What must be mended before optinc-hw works.
    """

    version: str
    python: str
    system: str
    packages: tuple[Package, ...]
    serial_ports: tuple[SerialPort, ...]
    visa_backends: tuple[VisaBackend, ...]
    problems: tuple[str, ...]


def diagnose() -> Diagnosis:
    """Look at packages, serial ports and VISA backends."""
    packages = tuple(Package(name, _version(name)) for name in _REQUIRED)
    packages += tuple(Package(name, _version(name), purpose) for name, purpose in _OPTIONAL)
    problems = [f"package {package.name} is missing; reinstall optinc-hw" for package in packages if package.missing]
    installed = {package.name for package in packages if package.version is not None}
    try:
        check_packages_not_shadowed()
    except OptincError as error:
        problems.append(str(error))
    return Diagnosis(
        version=optinc_hw.__version__,
        python=platform.python_version(),
        system=platform.platform(),
        packages=packages,
        serial_ports=_serial_ports() if "pyserial" in installed else (),
        visa_backends=_visa_backends() if {"pyvisa", "pyvisa-py"} <= installed else (),
        problems=tuple(problems),
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _serial_ports() -> tuple[SerialPort, ...]:
    from serial.tools import list_ports

    found = sorted(list_ports.comports(), key=lambda port: port.device)
    # Windows names (COM3) are no paths; there the port itself is the only thing to ask.
    return tuple(
        SerialPort(
            port.device,
            "" if port.description in (None, "n/a") else port.description,
            os.name == "nt" or os.access(port.device, os.R_OK | os.W_OK),
        )
        for port in found
    )


def _visa_backends() -> tuple[VisaBackend, ...]:
    from pyvisa import highlevel

    backends = []
    for name in highlevel.list_backends():
        try:
            paths = highlevel.get_wrapper_class(name).get_library_paths()
        except Exception as error:  # noqa: BLE001 - a broken vendor library must not keep the others from being listed
            backends.append(VisaBackend(name, False, str(error)))
            continue
        detail = ", ".join(str(path) for path in paths) if paths else "no library found"
        backends.append(VisaBackend(name, bool(paths), "pyvisa-py" if name == "py" else detail))
    return tuple(backends)
