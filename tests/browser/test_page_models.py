"""The page without a server: what its models hold, and what one look sends."""

import gc
import re
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from bokeh.document import Document
from bokeh.document.events import DocumentPatchedEvent
from bokeh.models import ColumnDataSource, DataTable, GlyphRenderer
from made_documents import MadeDocuments, job

from distrain.runs.report import colours
from distrain.scheduler.dashboard.page import TrainingPage
from distrain.scheduler.dashboard.watching import Watch


@pytest.fixture
def documents() -> MadeDocuments:
    return MadeDocuments(job("b"), job("a", "succeeded"))


@pytest.fixture
def page(documents: MadeDocuments) -> Iterator[TrainingPage]:
    page = TrainingPage(Watch(lambda: documents), "tcp://a:1")
    page.refresh()
    return page


def changes_of_a_look(page: TrainingPage, doc: Document) -> list[DocumentPatchedEvent]:
    seen: list[DocumentPatchedEvent] = []
    doc.on_change(seen.append)
    page.refresh()
    doc.remove_on_change(seen.append)
    return seen


def named(page: TrainingPage) -> dict[str, Any]:
    """Models by name, of one walk over all: a page has thousands of properties."""
    return {model.name: model for model in page.root.references() if model.name}


def test_a_look_sends_new_points_and_nothing_else(
    page: TrainingPage, documents: MadeDocuments
) -> None:
    doc = Document()
    doc.add_root(page.root)
    assert changes_of_a_look(page, doc) == []
    documents.steps["b"] += 1
    kinds = {event.kind for event in changes_of_a_look(page, doc)}
    assert kinds <= {"ColumnsStreamed", "ModelChanged"}
    assert "ColumnsStreamed" in kinds


def test_another_job_is_picked_in_the_selector_and_in_the_table(
    page: TrainingPage, documents: MadeDocuments
) -> None:
    models = named(page)
    select, head = models["job"], models["headline"]
    table = page.root.select_one({"type": DataTable})
    assert "running" in head.text
    assert table.source.selected.indices == [0]
    select.value = "a"
    assert "succeeded" in head.text
    assert table.source.selected.indices == [1]
    table.source.selected.indices = [0]
    assert select.value == "b"
    assert "running" in head.text
    documents.entries.insert(0, job("c", "pending"))
    documents.steps["c"] = 1
    page.refresh()
    assert table.source.selected.indices == [1], "the same job, one row further down"
    assert [value for value, _ in select.options] == ["", "c", "b", "a"]


def test_curves_can_be_drawn_over_rows_or_time(page: TrainingPage) -> None:
    models = page.root.references()
    drawn = [model for model in models if isinstance(model, GlyphRenderer)]

    def axes() -> set[str]:
        return {r.glyph.x for r in drawn if "loss" in str(getattr(r.glyph, "y", ""))}

    assert axes() == {"rows_total"}
    (switch,) = (model for model in models if model.name == "x")
    switch.active = 1
    assert axes() == {"elapsed_s"}
    named_models = named(page)
    source = named_models["time-by-phase"].renderers[0].data_source
    assert source.data["data_wait"] == [25.0, 25.0], "of the attempt"
    named_models["window"].active = 1
    assert source.data["data_wait"] == [100.0, 100.0], "of the last report"


def test_all_losses_are_in_range_but_a_wild_start(documents: MadeDocuments) -> None:
    documents.steps["b"] = 100  # 1, 1/2, ..., 1/100
    page = TrainingPage(Watch(lambda: documents), "tcp://a:1")
    page.refresh()
    drawn = page.root.select_one({"name": "loss"})
    assert drawn.y_range.start < 0.01
    assert 1 / 5 < drawn.y_range.end < 1.0
    assert re.fullmatch(r"Loss \(\d at the start outside\)", drawn.title.text)
    documents.valid["b"] = 3.0
    documents.generation += 1
    page.refresh()
    assert drawn.y_range.end > 3.0
    assert drawn.title.text == "Loss"


def test_another_job_is_laid_over_and_taken_away(documents: MadeDocuments) -> None:
    documents.steps["a"] = 7
    page = TrainingPage(Watch(lambda: documents), "tcp://a:1", Watch(lambda: documents, "a"))

    models = named(page)
    head = models["headline"]
    dashed = [
        line
        for name in ("loss", "auc", "rows-per-second", "learning-rate")
        for line in models[name].renderers
        if getattr(line.glyph, "line_dash", []) == [6] and line.glyph.line_color == colours.GREY
    ]

    def points() -> list[int]:
        return [len(line.data_source.data["step"]) for line in dashed]

    page.refresh()
    assert points() == [7, 7, 7, 7]
    assert "compared with a: succeeded" in head.text
    assert "b: running" in head.text or "clicks: running" in head.text
    documents.steps["a"] = 8
    page.refresh()
    assert points() == [8, 8, 8, 8]
    models["with"].value = ""
    assert points() == [0, 0, 0, 0]
    assert "compared with" not in head.text


def test_a_page_that_is_open_for_days_does_not_grow(documents: MadeDocuments) -> None:
    page = TrainingPage(Watch(lambda: documents), "tcp://a:1")

    def models_and_points() -> tuple[int, int]:
        found = page.root.references()
        sources = [model for model in found if isinstance(model, ColumnDataSource)]
        points = max(len(values) for s in sources for values in s.data.values())
        return len(found), points

    page.refresh()
    models, _ = models_and_points()
    select = named(page)["job"]
    for _ in range(20):
        documents.steps["b"] += 100
        if documents.steps["b"] > 512:
            documents.steps["b"], documents.generation = 256, documents.generation + 1
        page.refresh()
        select.value = "a" if select.value != "a" else "b"
    now, points = models_and_points()
    assert now == models
    assert points <= 512


def test_a_closed_page_is_forgotten(documents: MadeDocuments) -> None:
    page = TrainingPage(Watch(lambda: documents), "tcp://a:1")
    page.refresh()
    doc = Document()
    doc.add_root(page.root)
    doc.add_periodic_callback(page.refresh, 1_000)
    left = weakref.ref(page)
    doc.clear()
    del page, doc
    gc.collect()
    assert left() is None
