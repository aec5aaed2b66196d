"""`distrain report`: any run folder fits on one page, which needs no other file."""

import base64
import html.parser
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from click.testing import CliRunner
from kept_runs import finished_view, keep_run, records_of, spec_of, view_of
from PIL import Image

from distrain.cli.runs.report import command
from distrain.errors import InputError, OutputError
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.states import JobState
from distrain.runs.open_run import reopen_run
from distrain.runs.report.figures import metric_curves
from distrain.runs.report.run_page import write_report


class Page(html.parser.HTMLParser):
    """A page's texts, its pictures, and whatever it would fetch."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.images, self.fetched, self._open = [], {}, [], []
        self.feed(text)
        assert not self._open, "every tag is closed"

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag not in ("img", "meta"):
            self._open.append(tag)
        if tag in ("script", "link", "iframe", "object"):
            self.fetched.append(tag)
        source = values.get("src") or values.get("href") or ""
        if tag == "img" and source.startswith("data:image/svg+xml;base64,"):
            svg = base64.b64decode(source.partition(",")[2])
            self.images.setdefault(values["alt"], []).append(svg)
        elif source:
            self.fetched.append(source)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.cells.append(data)

    def row(self, name):
        return self.cells[self.cells.index(name) + 1]


def words_of(svg):
    return list(ET.fromstring(svg).itertext())


def page_of(root, tmp_path):
    out = tmp_path / "out.html"
    write_report(root, out)
    text = out.read_text()
    page = Page(text)
    assert page.fetched == []
    assert "Content-Security-Policy" in text
    return page


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return keep_run(tmp_path_factory.mktemp("runs") / "run", finished_view(records_of()))


@pytest.fixture
def words_alone(monkeypatch):
    """A page without its pictures, which take most of the time."""
    monkeypatch.setattr("distrain.runs.report.run_page.run_figures", lambda data: {})


def test_a_page_says_where_a_constant_beats_the_model(tmp_path, words_alone):
    records = [replace(record, normalised_entropy=1.25) for record in records_of()]
    root = keep_run(tmp_path / "run", finished_view(records))
    told = page_of(root, tmp_path).row("normalised entropy")
    assert told == "1.25000 (above 1: worse than a constant prediction)"


def test_a_run_that_succeeded_is_told_in_full(finished, tmp_path):
    page = page_of(finished, tmp_path)
    first = (tmp_path / "out.html").read_bytes()
    page_of(finished, tmp_path)
    assert (tmp_path / "out.html").read_bytes() == first  # the same run, the same page
    told = {name: page.row(name) for name in ("state", "rows trained", "AUC", "loss", "ranks")}
    assert told == {
        "state": "succeeded", "rows trained": "10,000", "AUC": "0.70000 (bins: within 1.0e-03)",
        "loss": "0.60000", "ranks": "2",
    }  # fmt: skip
    assert list(page.images) == [
        "Loss", "AUC, with the error of its bins as a band",
        "Reliability: predicted and observed rates of the last validation", "Learning rate",
        "Rows per second", "Where the time went", "Where the time went, by rank",
    ]  # fmt: skip
    assert [len(svgs) for svgs in page.images.values()] == [2, 2, 2, 2, 2, 1, 1]
    for svg in (svg for svgs in page.images.values() for svg in svgs):
        assert ET.fromstring(svg).tag.endswith("svg")
        assert not re.findall(rb'href="(?!#)', svg)
    reliability = {word for svg in [*page.images.values()][2] for word in words_of(svg)}
    assert {"mean prediction", "observed rate", "rows of the group"} <= reliability
    assert "training time [seconds]" in words_of(page.images["Loss"][1])
    drawn = "".join(words_of(page.images["Where the time went, by rank"][0]))
    assert "rank 1" in drawn
    assert "waiting for data" in drawn
    text = "\n".join(page.cells)
    for word in ("alpha", "GPU Y", "1.00 GiB", "RankDied", "<SIGKILL>", "embedding_dim", "torch"):
        assert word in text
    assert page.row("training rows") == "day_0"


def test_a_run_that_never_trained_has_no_pictures(tmp_path):
    view = view_of(JobState.CANCELLED, reason="Cancelled", message="by Ctrl-C")
    page = page_of(keep_run(tmp_path / "run", view), tmp_path)
    assert page.images == {}
    assert page.row("AUC") == "-"


def test_a_run_that_goes_on_is_shown_so_far(tmp_path, words_alone):
    root = keep_run(tmp_path / "run", view_of(JobState.RUNNING, records_of(40)))
    with reopen_run(root, spec_of()):
        page = page_of(root, tmp_path)
    assert page.row("state") == "running"
    assert page.row("rows/s") == "250"
    assert page.row("waiting for data") == "mean 24.2 %"  # 4 of 16.5 s


@pytest.mark.slow
def test_the_command_writes_into_the_run_and_curves_on_request(finished):
    done = CliRunner().invoke(command, [str(finished), "--curves"], catch_exceptions=False)
    paths = RunPaths(finished)
    assert done.output.splitlines() == [str(paths.report), str(paths.curves)]
    with Image.open(paths.curves) as picture:
        assert picture.format == "PNG"


def test_no_run_and_no_room_are_told(tmp_path):
    with pytest.raises(InputError):
        write_report(tmp_path, tmp_path / "out.html")
    root = keep_run(tmp_path / "run", view_of(JobState.CANCELLED))
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError):
        write_report(root, tmp_path / "file" / "out.html")
    assert json.loads(RunPaths(root).summary.read_text())["state"] == "cancelled"


def test_a_retrieval_model_is_drawn_by_its_loss_and_recall():
    plain = [one for one in records_of(3) if one.split == "valid"]
    retrieval = [replace(one, own={"recall_at_10": 0.2}) for one in plain]
    assert list(metric_curves(plain)) == ["loss", "auc"]
    assert list(metric_curves(retrieval)) == ["loss", "recall_at_10"]
