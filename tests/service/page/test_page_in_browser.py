"""The pages in Chromium: they follow their jobs, act after a question, and need no mouse."""

import json

import pytest
from api_world import SPEC, publish
from kept_runs import write_records
from page_world import page_world
from served_jobs import record

from distrain.jobs.run_paths import log_end

pytestmark = [
    pytest.mark.slow,
    # A socket that a leaving browser cut may be collected, and warned about, in a later test.
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]

STATE = "document.querySelector('.cards .state').textContent"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with page_world(tmp_path_factory.mktemp("page")) as found:
        yield found


@pytest.fixture
def alice(site, tab):
    page = tab.page
    tab.visit(f"{site.url}/jobs")
    page.fill("#token", site.world.tokens["alice"])
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs")
    return page


def test_a_job_is_followed_to_its_end(site, alice, tab, tmp_path):
    job = site.world.submit("alice")
    root = tmp_path / "run"
    site.world.change(job["id"], run_dir=str(root), state="running", phase="handed_over", attempt=1)
    paths = site.write_run(root)
    alice.goto(f"{site.url}/jobs/{job['id']}")
    alice.wait_for_selector("figure canvas")
    alice.wait_for_function(
        "() => document.getElementById('log').textContent.includes('meets its')"
    )
    assert "<b>rank 0" in alice.inner_text("#log")
    with paths.log(0, 1).open("a") as log:
        log.write("a line that came later\n")
    alice.wait_for_function(
        "() => document.getElementById('log').textContent.includes('came later')"
    )
    site.add_records(paths, 5, 5)
    site.world.end(job["id"])
    publish(site.world.store)
    alice.wait_for_function(
        "() => document.querySelector('.cards .state').textContent == 'succeeded'"
    )
    alice.wait_for_function("() => document.querySelector('.curves').innerText.includes('0.59')")


def legend(page, figure):
    """What a chart's legend says, by line."""
    rows = page.locator(f"figure[aria-label='{figure}'] .u-series")
    return dict(row.split("\n") for row in rows.all_inner_texts())


def test_curves_of_several_jobs_have_axes_a_legend_and_values_under_the_cursor(
    site, alice, tab, tmp_path
):
    jobs = [site.world.submit("alice") for _ in range(2)]
    for n, job in enumerate(jobs):
        site.world.change(job["id"], run_dir=str(tmp_path / str(n)))
        site.write_run(tmp_path / str(n), num_records=6)
    one, two = (job["id"] for job in jobs)
    alice.goto(f"{site.url}/jobs/{one}")
    alice.wait_for_selector("figure canvas")
    assert legend(alice, "AUC") == {"step": "60", "validation": "0.45000", "training": "0.55000"}
    alice.locator("figure[aria-label='AUC'] .u-over").hover(position={"x": 1, "y": 20})
    first = {"step": "10", "validation": "0.41000", "training": "0.50000"}  # its nearest point
    assert legend(alice, "AUC") == first
    assert legend(alice, "Loss")["step"] == "10"  # the cursor is in all charts
    alice.select_option("[name=over]", "rows_total")
    assert legend(alice, "AUC")["rows trained"] == "6,000"
    alice.goto(f"{site.url}/compare?job={one}&job={two}")
    alice.wait_for_selector("figure canvas")
    names = [job.replace("-", " ") for job in (one, two)]
    assert [*legend(alice, "AUC")] == [
        "step",
        *(f"{name} {split}" for name in names for split in ("valid.", "train")),
    ]


def test_rows_of_a_narrow_window_stay_low_and_sorting_by_auc_goes_by_validation(site, alice):
    overfit, good = (site.world.submit("alice")["id"] for _ in range(2))
    for job, train, valid in ((overfit, 0.9, 0.61), (good, 0.8, 0.78)):
        site.world.change(job, why_pending="w " * 300, progress={"auc": train, "valid_auc": valid})
    alice.set_viewport_size({"width": 400, "height": 800})
    alice.goto(f"{site.url}/jobs")
    heights = "rows => rows.map(row => row.getBoundingClientRect().height)"
    assert max(alice.eval_on_selector_all("tbody tr", heights)) < 120
    assert alice.evaluate("document.documentElement.scrollWidth") <= 400
    for _ in range(2):
        alice.click("th button:text-is('Validation')")
    ids = alice.eval_on_selector_all("tbody th a", "links => links.map(a => a.title)")
    assert ids.index(good) < ids.index(overfit)


def test_charts_are_smoothed_clipped_and_logarithmic_and_times_are_of_the_whole_run(
    site, alice, tmp_path
):
    job = site.world.submit("alice")["id"]
    site.world.change(job, run_dir=str(tmp_path / "run"))
    site.write_run(tmp_path / "run", num_records=40)
    alice.goto(f"{site.url}/jobs/{job}")
    alice.wait_for_selector("figure canvas")
    phases = alice.locator("#phases tbody tr").all_inner_texts()
    assert [row.split("\t")[:2] for row in phases] == [
        ["forward backward", "0:03:00"],  # 40 records of training and 20 of validation, 3 s each
        ["data wait", "0:01:00"],
    ]
    alice.select_option("#time-of", "last")
    assert "0:00:03" in alice.locator("#phases tbody tr").first.inner_text()
    before = legend(alice, "Loss")["training"]
    alice.locator("[name=smoothing]").fill("0.9")
    assert legend(alice, "Loss")["training"] > before, "losses fall, and an average lags"
    assert legend(alice, "Loss")["validation"]
    alice.check("[name=log]")
    alice.uncheck("[name=clip]")
    assert alice.locator("figure canvas").count() == 4


def test_a_page_of_thousands_of_records_goes_on_drawing_after_a_restart(site, alice, tmp_path):
    job = site.world.submit("alice")["id"]
    columns = {"state": "running", "phase": "handed_over", "attempt": 1}
    site.world.change(job, run_dir=str(tmp_path / "run"), **columns)
    paths = site.write_run(tmp_path / "run", num_records=2300)  # with validations 3,450
    alice.goto(f"{site.url}/jobs/{job}")
    alice.wait_for_function("() => document.querySelector('.curves').innerText.includes('23,000')")
    again = [record(2, step).to_json() for step in range(20_000, 25_000, 10)]
    write_records(paths, again, attempt=2, begin=20_000)
    site.world.change(job, attempt=2, progress={"step": 24_990})
    publish(site.world.store)
    alice.wait_for_function("() => document.querySelector('.curves').innerText.includes('24,990')")
    assert legend(alice, "Loss")["step"] == "24,990"


def test_hours_by_day_are_drawn_and_an_ended_jobs_ranks_have_their_memory(site, alice, tmp_path):
    job = site.world.submit("alice")["id"]
    site.world.hold(job, site.world.store.now_s() - 7200)
    site.world.change(job, run_dir=str(tmp_path / "run"))
    site.world.end(job)
    paths = site.write_run(tmp_path / "run")
    place = {"host": "node-1", "device": "cuda:0", "hardware": "NVIDIA H200"}
    summary = {"places": [place], "peak_memory": [{"host_bytes": 2**31, "device_bytes": 2**32}]}
    paths.summary.write_text('{"train_loss": NaN}')  # Python writes it; no browser reads it
    alice.goto(f"{site.url}/jobs/{job}")
    alice.wait_for_selector("#ranks tbody tr")
    paths.summary.write_text(json.dumps(summary))
    alice.goto(f"{site.url}/jobs/{job}")
    alice.wait_for_selector("#ranks td:text-is('NVIDIA H200')")
    first = alice.locator("#ranks tbody tr").first.inner_text().split("\t")
    assert first[3:] == ["2.0 GiB", "4.0 GiB", "NVIDIA H200", "node-1"]
    alice.goto(f"{site.url}/usage")
    alice.wait_for_selector("#days canvas")
    assert float(legend(alice, "Hours by day")["rank-hours"]) >= 2


def test_lines_of_all_ranks_are_searched(site, alice, tmp_path):
    job = site.world.submit("alice", spec={**SPEC, "resources": {"num_ranks": 2}})["id"]
    root = tmp_path / "run"
    site.world.change(job, run_dir=str(root), attempt=1)
    paths = site.write_run(root)
    paths.log(1, 1).write_text("rank 1 is here\n")
    alice.goto(f"{site.url}/jobs/{job}")
    alice.select_option("[name=rank]", "all")
    alice.click("form[data-log] button")
    alice.wait_for_function("() => document.getElementById('log').textContent.includes('[rank 1]')")
    alice.fill("[name=search]", "IS HERE")
    assert alice.inner_text("#log") == "[rank 1] rank 1 is here"


def test_the_log_of_a_rank_is_found_among_those_of_a_thousand(site, alice, tmp_path):
    job = site.world.submit("alice", spec={**SPEC, "resources": {"num_ranks": 64}})["id"]
    site.world.end(job)
    site.world.change(job, run_dir=str(tmp_path / "run"), attempt=1)
    paths = site.write_run(tmp_path / "run")
    for rank in range(1000):
        paths.log(rank, 1).write_text(f"rank {rank} is here\n")
        log_end(paths.log(rank, 1)).write_text("1")
    alice.goto(f"{site.url}/jobs/{job}")
    alice.select_option("[name=rank]", "63")
    alice.click("form[data-log] button")
    alice.wait_for_function("() => document.getElementById('log').textContent.includes('63 is')")


def test_a_report_opens_in_the_browser_and_runs_nothing(site, alice, tab, tmp_path):
    job = site.world.submit("alice")
    site.world.change(job["id"], run_dir=str(tmp_path / "run"))
    paths = site.write_run(tmp_path / "run")
    paths.report.write_text("<style>h1 {color: red}</style><h1>Run</h1><form action=/logout>")
    alice.goto(f"{site.url}/jobs/{job['id']}")
    alice.click("text=report.html")
    alice.wait_for_selector("h1:text-is('Run')")
    assert (
        alice.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(255, 0, 0)"
    )
    assert alice.evaluate("window.origin") == "null"


def test_a_job_is_cancelled_after_a_question(site, alice):
    job = site.world.submit("alice")["id"]
    alice.goto(f"{site.url}/jobs/{job}")
    alice.click("text=Cancel")
    assert job in alice.inner_text("#confirm-text")
    alice.keyboard.press("Enter")  # the focus is on keeping it
    assert site.world.store.job(job).intent == "run"
    alice.click("text=Cancel")
    alice.click("#confirm button[value=yes]")
    alice.wait_for_function(
        "() => document.querySelector('.cards .state').textContent == 'cancelled'"
    )
    assert site.world.store.job(job).intent == "cancel"


def test_pages_can_be_read_aloud_and_have_no_inline_styles(site, alice):
    job = site.world.submit("alice")["id"]
    for path in (
        "/jobs",
        f"/jobs/{job}",
        f"/jobs/{job}/edit",
        f"/compare?job={job}",
        "/queue",
        "/clusters",
        "/usage",
    ):
        alice.goto(f"{site.url}{path}")
        unnamed = alice.evaluate(
            "[...document.querySelectorAll('input, select, button')].filter(e => !e.labels?.length"
            " && !e.textContent.trim() && !e.ariaLabel && e.type != 'hidden').length"
        )
        assert unnamed == 0
        assert alice.evaluate("document.querySelectorAll('h1').length") == 1
        inline = "document.querySelectorAll(':is([style], [onclick]):not(.uplot, .uplot *)').length"
        assert alice.evaluate(inline) == 0, "but those that uPlot's script sets"
        assert alice.evaluate("document.documentElement.lang") == "en"
        heads = "[...document.querySelectorAll('th:not(.uplot *)')].every(h => h.scope)"
        assert alice.evaluate(heads)
        for width in (390, 1280):
            alice.set_viewport_size({"width": width, "height": 800})
            alice.wait_for_function(f"document.documentElement.scrollWidth <= {width}")
        light = alice.evaluate("getComputedStyle(document.body).backgroundColor")
        alice.emulate_media(color_scheme="dark")
        assert alice.evaluate("getComputedStyle(document.body).backgroundColor") != light
        alice.emulate_media(color_scheme="light")
        alice.keyboard.press("Tab")
        assert alice.evaluate("document.activeElement.className") == "skip"
