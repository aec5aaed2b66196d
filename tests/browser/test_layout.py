"""The Training page on small and large screens, of jobs that are made by hand."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_tab import Tab
from made_documents import MadeDocuments, job
from made_site import made_site
from PIL import Image, ImageStat

NAMED = "Bokeh.documents[0].get_model_by_name"
LOST = (
    "attempt 1 ended: RankDied: rank 1 (pid 23735, on tcp://10.0.0.7:44725) was killed by SIGKILL"
)
MOST_LOADED_BYTES = 2_100_000
SCREENS = (800, 600), (1400, 900)

# Boxes of what may not cover each other, through all shadow roots.
BOXES = """() => {
  const found = [], seen = root => {
    for (const element of root.querySelectorAll('*')) {
      if (element.matches('.bk-Figure, .bk-DataTable, .bk-Select, .bk-RadioButtonGroup, .bk-Div')) {
        const box = element.getBoundingClientRect();
        if (box.width * box.height > 0)
          found.push([element.className, box.left, box.top, box.right, box.bottom]);
      }
      if (element.shadowRoot) seen(element.shadowRoot);
    }
  };
  seen(document);
  return found;
}"""
CUT_CELLS = """() => {
  const cut = [], seen = root => {
    for (const element of root.querySelectorAll('*')) {
      if (element.matches('.slick-cell, .slick-column-name')
          && element.scrollWidth > element.clientWidth + 1) cut.push(element.innerText);
      if (element.shadowRoot) seen(element.shadowRoot);
    }
  };
  seen(document);
  return cut;
}"""


@pytest.fixture(scope="module")
def documents() -> MadeDocuments:
    restarted = {
        "attempt": 2, "restarts": 1, "tags": {"team": "ads", "model": "dlrm"},
        "timeline": [
            {"at_s": 1.0, "kind": "state", "attempt": 1, "step": None, "text": "running"},
            {"at_s": 9.0, "kind": "restart", "attempt": 1, "step": 20, "text": LOST},
        ],
    }  # fmt: skip
    ended = [
        job(f"nightly-20261121-0{number}0000-abcd", state, reason=reason, name=f"nightly-{number}")
        for number, (state, reason) in enumerate(
            [("failed", "NonFiniteLoss"), ("cancelled", "Cancelled"), *[("succeeded", None)] * 8]
        )
    ]
    found = MadeDocuments(job("clicks-20261122-091500-cdef", **restarted), *ended, num_ranks=8)
    for job_id in found.steps:
        found.steps[job_id], found.valid[job_id] = 120, 0.05
    return found


@pytest.fixture(scope="module")
def url(browser: Any, documents: MadeDocuments) -> Iterator[str]:
    with made_site(documents) as url:
        yield url


def covered(boxes: list[list[Any]]) -> list[tuple[str, str]]:
    """Pairs of boxes that share more than a line of pixels."""
    pairs = [(one, two) for at, one in enumerate(boxes) for two in boxes[at + 1 :]]
    return [
        (one[0], two[0])
        for one, two in pairs
        if min(one[3], two[3]) - max(one[1], two[1]) > 2
        and min(one[4], two[4]) - max(one[2], two[2]) > 2
    ]


@pytest.mark.slow
def test_the_page_is_small_and_nothing_is_covered_or_cut_on_any_screen(
    browser: Any, url: str, output: Path
) -> None:
    tab = Tab(browser, *SCREENS[0])
    loaded: list[int] = []
    tab.page.on("response", lambda response: loaded.append(len(response.body())))
    tab.open(url + "/distrain")
    assert tab.evaluate("document.documentElement.lang") == "en"
    assert tab.evaluate("[...document.scripts].filter(s => /mathjax/.test(s.src)).length") == 0
    assert sum(loaded) < MOST_LOADED_BYTES
    tab.wait_until(f"{NAMED}('loss').renderers[0].data_source.get_length() === 120")
    for width, height in SCREENS:
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.wait_until("Bokeh.documents[0].is_idle")
        boxes = tab.evaluate(BOXES)
        assert len(boxes) > 14
        assert covered(boxes) == []
        assert all(box[1] >= 0 and box[3] <= width for box in boxes), "nothing is outside"
        assert tab.evaluate(CUT_CELLS) == []
    see_failures_restarts_tags_and_specs(tab)
    see_it_dark_where_the_reader_wants_it(tab, output / "training-page-dark.png")
    tab.close()
    assert tab.troubles == []


def see_failures_restarts_tags_and_specs(tab: Tab) -> None:
    tab.page.get_by_text("attempt 2; attempt 1 ended: RankDied").wait_for()
    tab.page.get_by_text("team: ads, model: dlrm").wait_for()
    tab.page.get_by_text("Job spec, /runs/a").click()
    tab.page.get_by_text("name: clicks").wait_for()
    cell = tab.page.locator(".slick-row .slick-cell span", has_text="failed (NonFiniteLoss)")
    assert cell.evaluate("cell => getComputedStyle(cell).color") == "rgb(179, 38, 30)"
    assert tab.page.locator(".slick-row").count() == 11


def see_it_dark_where_the_reader_wants_it(tab: Tab, shot: Path) -> None:
    tab.page.emulate_media(color_scheme="dark")
    tab.page.screenshot(path=shot)
    with Image.open(shot) as picture:
        grey = picture.convert("L")
    assert ImageStat.Stat(grey).median[0] < 60
