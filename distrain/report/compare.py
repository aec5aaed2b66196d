"""`distrain compare`: runs side by side. Pure, except for reading and writing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distrain.report.figures import as_svg, comparison_figure
from distrain.report.page import page, paragraph, section, svg_image, table
from distrain.report.run_data import RunData, differences, read_run_data
from distrain.report.run_page import outcome_rows
from distrain.storage import whole_file

_ABSENT = "-"


@dataclass(frozen=True)
class Comparison:
    """Some runs side by side; every row has a name and a text for each run.

    Attributes:
        names: The runs', told apart by their directories where they have the same.
        settings: Fields of the spec in which they differ.
        environment: In what machine and versions they differ.
        outcomes: Their figures.
    """

    names: tuple[str, ...]
    settings: tuple[tuple[str, ...], ...]
    environment: tuple[tuple[str, ...], ...]
    outcomes: tuple[tuple[str, ...], ...]


def read_runs(roots: Sequence[Path]) -> list[RunData]:
    """Read run directories.

    Raises:
        InputError: One holds no run, or one that cannot be read.
    """
    return [read_run_data(root) for root in roots]


def compare(runs: Sequence[RunData]) -> Comparison:
    """Lay runs side by side.

    Args:
        runs: Two or more.
    """
    specs = [run.spec.model_dump(mode="json", by_alias=True) for run in runs]
    machines = [{"distrain": run.run.version, **run.run.environment} for run in runs]
    outcomes = [dict(outcome_rows(run)) for run in runs]
    return Comparison(
        names=_names(runs),
        settings=_differing(specs),
        environment=_differing(machines),
        outcomes=tuple((name, *(of_run[name] for of_run in outcomes)) for name in outcomes[0]),
    )


def write_comparison(runs: Sequence[RunData], out: Path) -> None:
    """Write a comparison with curves as one self-contained HTML file.

    Raises:
        OutputError: It cannot be written; what was there is as it was.
    """
    found = compare(runs)
    header = ("", *found.names)
    sections = [
        "<h1>Runs compared</h1>",
        section("Outcome", table(found.outcomes, header)),
        section("Differences in the spec", *_rows_or_words(found.settings, header)),
        section("Differences in the environment", *_rows_or_words(found.environment, header)),
    ]
    if any(run.records for run in runs):
        image = svg_image(as_svg(comparison_figure(runs, found.names)), "Curves of all runs")
        sections.insert(2, section("Curves", image))
    with whole_file(out) as partial:
        partial.write_text(page("Runs compared", sections), encoding="utf-8")


def _rows_or_words(rows: Sequence[Sequence[str]], header: Sequence[str]) -> list[str]:
    return [table(rows, header)] if rows else [paragraph("None.")]


def _names(runs: Sequence[RunData]) -> tuple[str, ...]:
    names = [run.name for run in runs]
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(f"{run.name} ({run.root})" for run in runs)


def _differing(documents: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], ...]:
    """The places where any document differs from the first, with everybody's value."""
    places = dict.fromkeys(
        place for other in documents[1:] for place in differences(documents[0], other)
    )
    return tuple((place, *(_text(_find(d, place)) for d in documents)) for place in places)


def _find(document: Any, place: str) -> Any:
    for name in place.split("."):
        if not isinstance(document, dict) or name not in document:
            return None
        document = document[name]
    return document


def _text(value: Any) -> str:
    return _ABSENT if value is None else str(value)
