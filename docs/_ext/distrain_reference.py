"""Directives whose content is drawn from the code at build time, so that it cannot go stale.

    {distrain-spec}          every section and field of a job spec
    {distrain-commands}      every command with its options
    {distrain-record} PATH   the fields of one dataclass, such as `distrain.runs.Summary`
    {distrain-events}        every event
    {distrain-phases}        where a rank's wall time goes
    {distrain-states}        the job's life as a picture and a table
    {distrain-exit-codes}    exit codes and what they mean
    {distrain-settings}      every key of the service's configuration
    {distrain-helm-values}   every value of the Helm chart
    {distrain-reasons}       why attempts end early, and what to do
    {distrain-service-calls} every call of the job service's API
    {distrain-service-codes} the codes of its errors

A directive's text is Markdown; a picture is SVG in the page itself.
"""

from abc import abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import commands_text
import helm_values_text
import records_text
import service_api_text
import settings_text
import spec_text
import states_text
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective


class Generated(SphinxDirective):
    """Parses what a function returns as if it stood in the page."""

    def run(self) -> list[nodes.Node]:
        """The nodes of the text."""
        try:
            text = self.text()
        except LookupError as error:
            raise ExtensionError(f"{self.name}: {error}") from error
        return self.parse_text_to_nodes(text, allow_section_headings=True)

    @abstractmethod
    def text(self) -> str:
        """The Markdown."""


class Record(Generated):
    """The fields of the dataclass that the argument names."""

    required_arguments = 1

    def text(self) -> str:
        """The Markdown."""
        module, _, name = self.arguments[0].rpartition(".")
        return records_text.fields(getattr(import_module(module), name))


class States(SphinxDirective):
    """The picture, then the table."""

    def run(self) -> list[nodes.Node]:
        """The nodes of both."""
        picture = nodes.raw("", states_text.svg(), format="html")
        return [picture, *self.parse_text_to_nodes(states_text.table())]


def _directive(make_text: Callable[[], str]) -> type[Generated]:
    class Plain(Generated):
        def text(self) -> str:
            return make_text()

    return Plain


# Pages that lie beside the README and are included here, under the names they have here.
_INCLUDED = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "development.md",
}


def _link_here(app: Sphinx, path: Path, docname: str, content: list[str]) -> None:
    """Turn links between the included pages, which are right in the repository, into ours."""
    for there, here in _INCLUDED.items():
        content[0] = content[0].replace(f"]({there}", f"]({here}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    for name, make_text in {
        "distrain-spec": spec_text.sections,
        "distrain-commands": commands_text.commands,
        "distrain-settings": settings_text.sections,
        "distrain-helm-values": helm_values_text.sections,
        "distrain-events": records_text.events,
        "distrain-phases": records_text.phases,
        "distrain-exit-codes": records_text.exit_codes,
        "distrain-reasons": records_text.reasons,
        "distrain-service-calls": service_api_text.calls,
        "distrain-service-codes": service_api_text.codes,
    }.items():
        app.add_directive(name, _directive(make_text))
    app.add_directive("distrain-record", Record)
    app.add_directive("distrain-states", States)
    app.connect("include-read", _link_here)
    # The pages depend on code that Sphinx does not watch: read them all each time.
    app.connect("env-get-outdated", lambda app, env, added, changed, removed: env.found_docs)
    return {"version": "1", "parallel_read_safe": True}
