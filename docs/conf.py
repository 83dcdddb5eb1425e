"""Sphinx: the site of these pages. `make docs` builds it into build/docs, without anything from the network."""

project = "IN²R"
copyright = "the IN²R developers, Apache-2.0"
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "IN²R"
html_copy_source = False
html_use_index = False
