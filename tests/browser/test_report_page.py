"""The report of a run in a browser: narrow, dark, and printed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_tab import PATIENCE_S
from kept_runs import finished_view, keep_run, records_of

from distrain.runs.report.run_page import write_report

BROKEN_WORDS = """() => {
  const broken = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (!node.parentElement.closest('table') || node.parentElement.closest('.long')) continue;
    for (const word of node.data.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(rect => Math.round(rect.top)));
      if (lines.size > 1 && !word[0].includes('-')) broken.push(word[0]);
    }
  }
  return broken;
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(keep_run(folder / "run", finished_view(records_of())), folder / "report.html")
    return folder / "report.html"


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 800, "height": 600})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    page.goto(f"file://{report}")
    yield page
    context.close()


def colours(page: Any) -> tuple[int, int]:
    """How bright page and text are, from 0 to 255."""
    told = page.evaluate(
        "() => ['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name])"
    )
    paper, ink = (int(colour.partition("(")[2].partition(",")[0]) for colour in told)
    return paper, ink


def test_no_word_of_a_table_is_broken_on_a_narrow_screen(page: Any) -> None:
    assert page.evaluate("() => document.querySelectorAll('table tr').length") > 30
    assert page.evaluate(BROKEN_WORDS) == []
    wide = "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(wide), "the page itself does not scroll sideways"


def test_it_is_dark_where_the_reader_is_and_white_on_paper(page: Any) -> None:
    paper, ink = colours(page)
    assert paper == 255 > 100 > ink
    page.emulate_media(color_scheme="dark")
    paper, ink = colours(page)
    assert paper < 60 < 200 < ink
    assert "invert" in page.evaluate("() => getComputedStyle(document.images[0]).filter")
    page.emulate_media(media="print", color_scheme="dark")
    assert colours(page)[0] == 255
    assert page.evaluate("() => getComputedStyle(document.images[0]).filter") == "none"
