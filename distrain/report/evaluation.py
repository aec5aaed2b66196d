"""What `distrain evaluate --json` printed, as sections of a run's page."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from distrain.errors import InputError
from distrain.report.markup import section, table
from distrain.wording import UNKNOWN, count, of_targets

_GROUP_FIGURES = ("rows", "positives", "auc", "log_loss", "calibration")


def read_evaluation(file: Path) -> Mapping[str, Any]:
    """The document in a file; an `InputError` if it is none of `distrain evaluate --json`."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _no_evaluation(file, str(error)) from None
    if not isinstance(document, dict) or "rows" not in document:
        raise _no_evaluation(file, "it has no `rows`")
    return document


def evaluation_sections(document: Mapping[str, Any]) -> Iterator[str]:
    """Tables of metrics, groups or days, drift and importance, as far as they were measured."""
    single = {name: value for name, value in document.items() if not isinstance(value, dict | list)}
    figures = [(_words(name), _text(value)) for name, value in single.items()]
    yield section("Evaluation", table([*figures, *of_targets(document.get("targets"))]))
    what = "days" if "days" in document else "largest_groups"
    if groups := document.get(what):
        rows = [
            [_text(one["value"]), *(_text(one.get(n)) for n in _GROUP_FIGURES)] for one in groups
        ]
        header = (document["group"], *map(_words, _GROUP_FIGURES))
        yield section(f"Evaluation: {_words(what)}", table(rows, header))
    importance = document.get("importance", {"metric": "", "loss": {}})
    for title, of_columns in (
        ("population stability index of columns", document.get("drift", {})),
        (f"how much worse {importance['metric']} is with a column shuffled", importance["loss"]),
    ):
        if of_columns:
            named = [(column, _text(value)) for column, value in of_columns.items()]
            yield section(f"Evaluation: {title}", table(named))


def _no_evaluation(file: Path, why: str) -> InputError:
    return InputError(
        f"not an evaluation: {why}",
        where={"file": file},
        hint="Write one: distrain evaluate RUN DATA --json > evaluation.json",
    )


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(value: object) -> str:
    if isinstance(value, int):
        return count(value)
    return f"{value:.6g}" if isinstance(value, float) else UNKNOWN if value is None else str(value)
