"""Sphinx settings: `make docs` builds build/docs, warnings are errors."""

from pathlib import Path

project = "corro"
author = "the corro developers"
release = (Path(__file__).parent.parent / "python/corro/VERSION").read_text().strip()

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_typehints = "description"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["README.md"]
# `make docs` has the pictures made by a test, where there is a browser; elsewhere pages show their
# text.
suppress_warnings = ["image.not_readable"]

html_theme = "furo"
html_title = f"corro {release}"
