"""Detects a folder of the user that hides one of our top-level packages.

``drivers``, ``calibration`` and ``simulated_instruments`` are common folder names in labs; Python takes the
first match on ``sys.path``, so a user's own folder would be imported instead of ours and fail far away.
"""

import importlib.util
from pathlib import Path

from optinc_hw.errors import ConfigurationError

_SIBLINGS = ("drivers", "calibration", "simulated_instruments")


class ShadowedPackageError(ConfigurationError, ImportError):
    """One of our top-level packages is hidden by something else of the same name on ``sys.path``."""


def _found_folders(name: str) -> list[Path]:
    """Folders (or the file's folder, for a plain module) that ``import name`` would use."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a hand-made module in sys.modules without a spec
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(place).resolve() for place in spec.submodule_search_locations]
    return [Path(spec.origin).resolve()] if spec.origin else []


def check_packages_not_shadowed() -> None:
    """Check that our sibling packages are the ones that Python would import.

    Raises
    ------
    ShadowedPackageError
        (a ConfigurationError and an ImportError) if ``drivers``, ``calibration`` or ``simulated_instruments``
        is missing or resolves to a folder or file that is not installed beside ``optinc_hw``.
    """
    home = Path(__file__).resolve().parent.parent
    for name in _SIBLINGS:
        folders = _found_folders(name)
        expected = home / name
        if folders and folders[0] == expected:
            continue
        if not folders:
            raise ShadowedPackageError(
                f"package {name!r} of optinc-hw is not importable (expected {expected}); reinstall optinc-hw",
                name=name,
            )
        raise ShadowedPackageError(
            f"{folders[0]} hides the package {name!r} of optinc-hw ({expected}): Python finds it first on sys.path. "
            f"Rename that folder or file, or start Python elsewhere (or with -P), so that it is not on the path",
            name=name,
            path=str(folders[0]),
        )
