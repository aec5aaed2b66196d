"""The references in the pages of `docs`, made from the code: a clone has them as text.

python docs/_ext/references.py            fails where a page or a file is stale
python docs/_ext/references.py --write    replaces what stands between `made` and its end
"""

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

import commands_text
import comparison_chart
import helm_values_text
import records_text
import service_api_text
import settings_text
import spec_text
import states_text

DOCS = Path(__file__).resolve().parents[1]
_MADE = re.compile(r"(<!-- made: (\S+)(?: (\S+))? -->\n).*?(<!-- end of \2 -->)", re.DOTALL)

PIECES: Mapping[str, Callable[[], str]] = {
    "commands": commands_text.commands,
    "events": records_text.events,
    "exit-codes": records_text.exit_codes,
    "helm-values": helm_values_text.sections,
    "phases": records_text.phases,
    "reasons": records_text.reasons,
    "service-calls": service_api_text.calls,
    "service-codes": service_api_text.codes,
    "service-types": service_api_text.types,
    "settings": settings_text.sections,
    "spec": spec_text.sections,
    "states": states_text.table,
    "view": records_text.view,
}
"""Generated texts in pages, by name; `record PATH` has the fields of a dataclass."""

FILES: Mapping[str, Callable[[], str]] = {
    "service-openapi.json": service_api_text.document_text,
    "images/comparison.svg": comparison_chart.svg,
    "images/job-states.svg": states_text.svg,
}
"""Generated files beside the pages."""


def made_anew(page: str) -> str:
    """A page with what is made in it replaced."""
    return _MADE.sub(lambda m: f"{m[1]}\n{_text(m[2], m[3])}\n\n{m[4]}", page)


def _text(name: str, argument: str | None) -> str:
    if name != "record":
        return PIECES[name]()
    module, _, record = (argument or "").rpartition(".")
    return records_text.fields(getattr(import_module(module), record))


def stale() -> dict[Path, str]:
    """Pages and files that are not what the code says, and what they should be."""
    pages = {
        path: path.read_text(encoding="utf-8")
        for path in DOCS.rglob("*.md")
        if "_build" not in path.parts
    }
    wanted = {path: made_anew(text) for path, text in pages.items() if "<!-- made: " in text}
    wanted |= {DOCS / name: make() for name, make in FILES.items()}
    now = {path: path.read_text(encoding="utf-8") if path.exists() else "" for path in wanted}
    return {path: text for path, text in wanted.items() if text != now[path]}


def main(arguments: list[str]) -> int:
    """Check the pages, or write them; returns the exit code."""
    found = stale()
    if arguments == ["--write"]:
        for path, text in found.items():
            path.write_text(text, encoding="utf-8")
        return 0
    for path in found:
        print(f"{path} is not what the code says: python docs/_ext/references.py --write")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
