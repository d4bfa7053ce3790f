"""Settings of other people's software."""

import importlib.util
import json
import sys
from types import ModuleType

import pytest

if importlib.util.find_spec("tkinter") is None:
    # LabExT imports the names of a window that its instruments never open; some Pythons come without tkinter.
    windows = ModuleType("tkinter")
    for name in ("Label", "Toplevel", "messagebox", "ttk"):
        setattr(windows, name, type(name, (), {}))
    windows.TclError = type("TclError", (Exception,), {})
    sys.modules["tkinter"] = windows


@pytest.fixture
def labext_settings(tmp_path, monkeypatch):
    """Give LabExT a VISA library of its own, in its own settings file.

    Its resource manager is a subclass of pyvisa's, which gives everybody in a process the same manager of a library:
    LabExT would be given one that lacks its methods if anybody had opened ``@py`` before.
    """
    settings = tmp_path / ".labext"
    settings.mkdir()
    (settings / "instruments.config").write_text(json.dumps({"Visa Library Path": "labext@py"}))
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
