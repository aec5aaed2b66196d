"""Dask's template of a page, without what the Training page does not need."""

import re
from functools import cache

from jinja2 import BaseLoader, ChoiceLoader, DictLoader, Environment, Template

_UNUSED = re.compile(r"\s*<script[^>]*/bokeh-(?:mathjax|gl)[^>]*></script>")
"""Formulas and WebGL: half of all that a page would load."""


@cache
def light_template(dask: Environment) -> Template:
    """Dask's `simple.html`: in English, open to zooming, and without scripts that draw nothing.

    Args:
        dask: Where Dask's templates are.
    """
    loader = dask.loader
    assert isinstance(loader, BaseLoader)
    base, _, _ = loader.get_source(dask, "base.html")
    base = base.replace("<html>", '<html lang="en">')
    base = base.replace(", maximum-scale=1.0, user-scalable=no", "")
    base = base.replace("{{ bokeh_js |", "{{ bokeh_js | without_unused |")
    ours = dask.overlay(loader=ChoiceLoader([DictLoader({"base.html": base}), loader]))
    ours.filters = {**dask.filters, "without_unused": lambda scripts: _UNUSED.sub("", str(scripts))}
    return ours.get_template("simple.html")
