"""Sphinx configuration; build with ``sphinx-build -W docs build/docs``."""

import optinc_hw

project = "optinc-hw"
author = "The optinc-hw developers"
release = optinc_hw.__version__
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"optinc-hw {release}"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# Docstrings name things in single backticks without a role; many of these are parameters, so missing ones are no error.
default_role = "py:obj"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = True
napoleon_google_docstring = False
