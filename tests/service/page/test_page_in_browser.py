"""The pages in Chromium: they follow their jobs, act after a question, and need no mouse."""

import json

import pytest
from api_world import SPEC, publish
from kept_runs import write_records
from served_jobs import record

from distrain.jobs.run_paths import log_end

pytestmark = [
    pytest.mark.slow,
    # A socket that a leaving browser cut may be collected, and warned about, in a later test.
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]

DEVICE = ["NVIDIA H200", "node-1"]
STATE = ".cards .state:text-is('{}')"


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
    alice.goto(f"{site.url}/compare?job=none")  # without jobs, its scripts have nothing to do
    alice.goto(f"{site.url}/jobs/{job['id']}")
    alice.wait_for_selector("figure canvas")
    alice.click("button:text-is('Cancel')")
    assert alice.inner_text("#confirm-yes") == "Cancel the job"
    alice.click("dialog button:text-is('Back')")
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
    alice.wait_for_selector("button:text-is('Cancel')", state="detached")
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
    alice.click("th button:text-is('Valid. AUC')")
    alice.reload()  # the address has the order
    assert alice.get_attribute("th:has(button:text-is('Valid. AUC'))", "aria-sort") == "descending"
    ids = alice.eval_on_selector_all("tbody th a", "links => links.map(a => a.title)")
    assert ids[:2] == [good, overfit], "jobs without a value are last"
    alice.click("form.filters button:text-is('Filter')")
    alice.wait_for_selector("th[aria-sort=descending] button:text-is('Valid. AUC')")


def test_jobs_stay_sorted_by_one_of_two_settings_with_the_same_last_word(site, alice):
    for lr, other in ((0.1, 0.4), (0.2, 0.3)):
        train = {"optimizer": {"lr": lr}, "table_optimizer": {"lr": other}}
        site.world.submit("alice", spec={**SPEC, "train": train})
    alice.goto(f"{site.url}/jobs")
    fields = alice.eval_on_selector_all("th:has(button:text-is('lr'))", "a => a.map(h => h.title)")
    assert len(set(fields)) == 2
    alice.click(f"th[title='{fields[1]}'] button")
    alice.reload()
    assert alice.eval_on_selector("th[aria-sort]", "head => head.title") == fields[1]


def test_charts_are_smoothed_clipped_and_logarithmic_and_times_are_of_the_whole_run(
    site, alice, tmp_path
):
    job = site.world.submit("alice")["id"]
    site.world.change(job, run_dir=str(tmp_path / "run"))
    site.write_run(tmp_path / "run", num_records=40)
    alice.goto(f"{site.url}/jobs/{job}")
    alice.wait_for_selector("figure canvas")
    alice.wait_for_selector("#phases tbody tr")
    phases = alice.locator("#phases tbody tr").all_inner_texts()
    assert [row.split("\t")[:2] for row in phases] == [
        ["forward backward", "0:03:00"],  # 40 records of training and 20 of validation, 3 s each
        ["waiting for data", "0:01:00"],
    ]
    alice.select_option("#time-of", "last")
    assert "0:00:03" in alice.locator("#phases tbody tr").first.inner_text()
    assert alice.inner_text("#best") == "best AUC 0.79000 at step 400"
    alice.check("[name=log]")
    before = legend(alice, "Loss")["training"]
    alice.locator("[name=smoothing]").fill("0.9")
    assert legend(alice, "Loss")["training"] > before, "losses fall, and an average lags"
    assert legend(alice, "Loss")["validation"]


def test_a_page_of_thousands_of_records_goes_on_drawing_after_a_restart(site, alice, tmp_path):
    job = site.world.submit("alice")["id"]
    columns = {"state": "running", "phase": "handed_over", "attempt": 1}
    site.world.change(job, run_dir=str(tmp_path / "run"), **columns)
    paths = site.write_run(tmp_path / "run", num_records=2300)  # with validations 3,450
    alice.goto(f"{site.url}/jobs/{job}")
    alice.wait_for_function("() => document.querySelector('.curves').innerText.includes('23,000')")
    again = [record(2, step).to_json() for step in range(20_000, 25_000, 10)]
    site.world.change(job, attempt=2, progress={"step": 24_990})
    write_records(paths, again, attempt=2, begin=20_000)
    publish(site.world.store)
    alice.wait_for_function("() => document.querySelector('.curves').innerText.includes('24,990')")
    assert legend(alice, "Loss")["step"] == "24,990"


def test_hours_by_day_are_drawn_and_an_ended_jobs_ranks_have_their_memory(site, alice, tmp_path):
    job = site.world.submit("alice")["id"]
    site.world.hold(job, site.world.store.now_s() - 7200)
    site.world.change(job, run_dir=str(tmp_path / "run"))
    site.world.end(job)
    paths = site.write_run(tmp_path / "run")
    paths.summary.write_text('{"train_loss": NaN}')  # Python writes it; no browser reads it
    alice.goto(f"{site.url}/jobs/{job}")
    alice.wait_for_selector("#ranks td:text-is('NVIDIA H200')")
    first = alice.locator("#ranks tbody tr").first
    assert first.inner_text().split("\t") == ["0", "1.5 %", "", "150 %", "1.0 GiB", *DEVICE]
    peaks = [{"host_bytes": 2**31, "device_bytes": 2**32}] * 2
    paths.summary.write_text(json.dumps({"state": "succeeded", "peak_memory": peaks}))
    alice.goto(f"{site.url}/jobs/{job}")
    alice.wait_for_selector("#ranks td:text-is('4.0 GiB')")
    assert first.inner_text().split("\t")[3:] == ["150 %", "2.0 GiB", "4.0 GiB", *DEVICE]
    alice.goto(f"{site.url}/usage")
    alice.wait_for_selector("#days canvas")
    assert float(legend(alice, "Hours by day")["rank-hours"]) >= 2


def test_lines_of_all_ranks_are_searched_also_if_one_log_cannot_be_read(site, alice, tab, tmp_path):
    job = site.world.submit("alice", spec={**SPEC, "resources": {"num_ranks": 2}})["id"]
    root = tmp_path / "run"
    site.world.change(job, run_dir=str(root), attempt=1)
    paths = site.write_run(root)
    paths.log(1, 1).write_text("rank 1 is here\n")
    alice.route("**/rank-0.log", lambda route: route.fulfill(status=500))
    alice.goto(f"{site.url}/jobs/{job}")
    alice.select_option("[name=rank]", "all")
    alice.uncheck("[name=follow]")
    alice.click("form[data-log] button")
    alice.wait_for_function("() => document.getElementById('log').textContent.includes('[rank 1]')")
    assert "[rank 0] this log cannot be read: the service answers 500" in alice.inner_text("#log")
    tab.troubles.clear()  # those of the first rank's log
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


def compare(page, name, jobs):
    """From the list of jobs to the page of the first of the compared ones."""
    page.fill("[name=text]", name)
    page.click("button:text-is('Filter')")
    page.wait_for_url("**text=walk*")
    page.click("th button:text-is('Name')")
    for job in jobs:
        page.check(f"[name=job][value='{job}']")
    page.click("text=Compare ticked jobs")
    page.wait_for_selector("figure canvas")
    page.click(f"thead a[href$='{jobs[0]}']")
    page.wait_for_selector("figure canvas")
    page.select_option("[name=over]", "elapsed_s")
    for box in ("log", "clip"):
        page.set_checked(f"[name={box}]", box == "log")
    assert page.locator("figure canvas").count() == 5
    page.select_option("#time-of", "last")


def cancel_and_resume(page, site, job):
    """With a question before each."""
    page.click("text=Cancel")
    assert job in page.inner_text("#confirm-text")
    page.keyboard.press("Enter")  # the focus is on keeping it
    assert site.world.store.job(job).intent == "run"
    page.click("text=Cancel")
    page.click("#confirm button[value=yes]")
    page.wait_for_selector(STATE.format("cancelled"))
    page.click("button:text-is('Resume')")
    page.click("#confirm button[value=yes]")
    page.wait_for_selector(STATE.format("queued"))


def submit_with_another_setting(page, job):
    """And see what differs."""
    page.click("text=Edit and submit again")
    page.fill("#spec", page.input_value("#spec").replace("epochs: 1", "epochs: 7"))
    page.click("button:text-is('Submit')")
    page.wait_for_selector("text=copy of")
    rows = page.locator(".settings tbody tr")
    assert ["train.epochs", "7", "1"] in [row.split("\t") for row in rows.all_inner_texts()]
    page.click(f"text=Compare with {job}")
    page.wait_for_url("**/compare?*")
    assert [row.split("\t") for row in rows.all_inner_texts()] == [["train.epochs", "7", "1"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_each_action_works_on_every_screen(site, tab, tmp_path, width, scheme):
    page, said = tab.page, []
    page.on("console", lambda message: said.append(message.text))
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    name = f"walk-{width}-{scheme}"
    spec = {**SPEC, "name": name, "resources": {"num_ranks": 2}}
    jobs = [site.world.submit("alice", spec=spec)["id"] for _ in range(2)]
    for job in jobs:
        site.world.change(job, run_dir=str(tmp_path / job))
        site.write_run(tmp_path / job)
    tab.visit(f"{site.url}/jobs")
    page.fill("#token", site.world.tokens["alice"])
    page.click("button:text-is('Log in')")
    compare(page, name, jobs)
    cancel_and_resume(page, site, jobs[0])
    submit_with_another_setting(page, jobs[0])
    for link in ("Queue", "Clusters", "Usage"):
        page.click(f"nav >> text={link}")
        page.wait_for_selector(f"h1:text-is('{link}')")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.check("[value=day]")
    page.click("button:text-is('Show')")
    page.wait_for_url("**by=day*")
    page.click("text=Log out")
    page.wait_for_url("**/login")
    assert not said, "\n".join(said)


def test_pages_pass_axe_and_have_no_inline_styles(site, alice):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    job = site.world.submit("alice")["id"]
    site.world.change(job, state="failed", message="a rank died", reason="RankDied")
    paths = [f"/jobs/{job}", f"/jobs/{job}/edit", f"/compare?job={job}"]
    for path in ("/jobs", *paths, "/queue", "/clusters", "/usage", "/login"):
        alice.goto(f"{site.url}{path}")
        inline = "document.querySelectorAll(':is([style], [onclick]):not(.uplot, .uplot *)').length"
        assert alice.evaluate(inline) == 0, "but those that uPlot's script sets"
        seen = set()
        for width, scheme in ((390, "light"), (1280, "dark")):
            alice.set_viewport_size({"width": width, "height": 800})
            alice.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no colours between
            alice.wait_for_function(f"() => document.documentElement.scrollWidth <= {width}")
            seen.add(alice.evaluate("getComputedStyle(document.body).backgroundColor"))
            found = axe.run(alice)
            assert found.violations_count == 0, found.generate_report()
        assert len(seen) == 2, "dark and light differ"
        if path != "/login":  # whose focus is on the token
            alice.keyboard.press("Tab")
            assert alice.evaluate("document.activeElement.className") == "skip"
