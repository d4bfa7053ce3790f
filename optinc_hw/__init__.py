"""Hardware-in-the-loop control and calibration for OptINC, an optical in-network computer.

Importing this package does no I/O and loads neither torch nor QCoDeS; the public names below
are resolved on first use (PEP 562).
"""

from typing import TYPE_CHECKING, Any

from optinc_hw.errors import OptincError

if TYPE_CHECKING:
    from optinc_hw.bench import Bench

__version__ = "0.1.0"

__all__ = ["Bench", "OptincError", "__version__"]


def __getattr__(name: str) -> Any:  # Any: PEP 562 hooks return whatever the module exports
    if name == "Bench":
        from optinc_hw.bench import Bench

        return Bench
    raise AttributeError(f"module 'optinc_hw' has no attribute {name!r}")
