"""A figure is on each screen that it names, and nowhere else does one need to be named."""

import io

import pytest
from rich.console import Console

from distrain.cli.jobs.list import JobsTable
from distrain.cli.jobs.status_lines import job_lines
from distrain.cli.top.tables import screen
from distrain.jobs.api_answers import FIGURES, Job
from distrain.jobs.figures import SHOWN, Figure
from distrain.scheduler.dashboard import tables
from distrain.scheduler.dashboard.job_text import headline, job_columns
from distrain.scheduler.http import prometheus
from distrain.service.page.comparison import metric_rows

VALUES = {one.name: 101.0 + number for number, one in enumerate(SHOWN)}


def drawn(part: object) -> str:
    text = io.StringIO()
    Console(file=text, width=300).print(part)
    return text.getvalue()


@pytest.mark.parametrize("figure", SHOWN, ids=lambda figure: figure.name)
def test_a_figure_is_on_each_screen_that_it_names(figure: Figure) -> None:
    document = {"id": "a-1", "state": "running", "attempt": 1, **VALUES}
    job, title, text = Job.read(document), figure.title, figure.of(VALUES)
    phrase = figure.phrase.format(title=title.lower(), text=text)
    texts = {
        "status": ("\n".join(job_lines(job)), f"{title.lower():15}{text}"),
        "jobs": (drawn(JobsTable([job])), text),
        "line": (drawn(screen([], job, 24, "")), phrase),
        "training": (headline(document, ""), phrase),
    }
    for where, (shown, part) in texts.items():
        assert (part in shown) or where not in figure.on, where
    assert (job_columns([document]).get(figure.name) == [text]) is ("training" in figure.on)
    assert (figure.name in tables._TITLES) or "training" not in figure.on
    compared = {row.field: row.values for row in metric_rows([job, job], [None, None])}
    assert (compared.get(title) == (text, text)) is ("comparison" in figure.on)
    if figure.metric:
        assert figure.name in FIGURES
        assert f"distrain_job_{figure.metric}" in {
            name for _, name, *_ in prometheus._SINGLE_VALUES
        }
