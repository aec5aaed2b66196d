"""Sphinx: `llms.txt` beside the pages, the index as plain text (https://llmstxt.org)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("build-finished", _write)


def _write(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        text = "\n".join(_lines(app.builder))
        Path(app.outdir, "llms.txt").write_text(f"{text}\n", encoding="utf-8")


def _lines(builder: Any) -> Iterator[str]:
    index = builder.env.get_doctree("index")
    yield f"# {builder.config.project}"
    yield f"\n> {_first_sentence(index)}"
    for tree in index.findall(addnodes.toctree):
        yield f"\n## {tree['caption']}\n"
        for title, name in tree["entries"]:
            said = _first_sentence(builder.env.get_doctree(name))
            shown = title or builder.env.titles[name].astext()
            yield f"- [{shown}]({builder.get_target_uri(name)}): {said}"


def _first_sentence(document: Any) -> str:
    for node in document.findall(nodes.paragraph):
        return re.split(r"(?<=[.:]) ", " ".join(node.astext().split()))[0]
    return ""
