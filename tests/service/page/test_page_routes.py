"""The pages as a browser without scripts gets them: who sees what, and what is refused."""

import html
import re

import httpx2
import pytest
from api_world import SPEC, write_job
from page_world import page_world
from service_store import submitted

from distrain.service.access.sessions import COOKIE
from distrain.service.store.listing import JobFilter
from distrain.service.values import Attempt, Scope


@pytest.fixture
def browser(site):
    """Signs on, and keeps cookies."""
    opened = []

    def sign_on(user):
        origin = {"Origin": site.url}
        client = httpx2.Client(base_url=site.url, follow_redirects=True, timeout=60, headers=origin)
        opened.append(client)
        answer = client.post("/login", data={"token": site.world.tokens[user], "next": "/jobs"})
        assert answer.status_code == 200
        assert answer.url.path == "/jobs"
        return client

    yield sign_on
    for client in opened:
        client.close()


def test_whoever_is_not_signed_on_is_asked_for_a_token(site):
    answer = httpx2.get(f"{site.url}/jobs/some-job?with=b", follow_redirects=True)
    assert answer.status_code == 200
    assert "Log in" in answer.text
    assert 'name="next" value="/jobs/some-job?with=b"' in answer.text


def test_a_log_in_leads_to_no_other_site_and_its_cookie_is_kept_from_scripts(site):
    token = site.world.tokens["alice"]
    for elsewhere in ("//evil.example/x", "https://evil.example", "/\\evil"):
        answer = httpx2.post(f"{site.url}/login", data={"token": token, "next": elsewhere})
        assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
        cookie = answer.headers["set-cookie"].lower()
        assert {"httponly", "samesite=strict"} <= set(cookie.split("; "))
        assert token.lower() not in cookie


def test_a_log_in_with_a_wrong_token_or_from_another_site_is_refused(site):
    good, evil = site.world.tokens["alice"], {"Origin": "https://evil.example"}
    wrong = [(one, {}) for one in ("", "dtr_", "dtr_abc_def_ghi", "x" * 5000)]
    for token, headers in [*wrong, (good, evil)]:
        answer = httpx2.post(f"{site.url}/login", data={"token": token}, headers=headers)
        assert answer.status_code in (400, 401, 403, 422)
        assert "set-cookie" not in answer.headers


def test_others_jobs_are_not_there(site, browser):
    job = site.world.submit("alice")["id"]
    assert job in browser("alice").get("/jobs").text
    assert job in browser("viewer").get("/jobs").text
    for user in ("bob", "stranger"):
        client = browser(user)
        assert job not in client.get("/jobs").text
        assert job not in client.get("/queue").text
        answer = client.get(f"/jobs/{job}")
        assert answer.status_code == 404
        assert "may not see it" in answer.text
        mine = site.world.submit(user, project="web" if user == "stranger" else "ads")["id"]
        compared = client.get("/compare", params={"job": [mine, job]})
        assert compared.status_code == 200
        assert "may not see it" in compared.text


def test_what_users_wrote_is_text(site, browser, tmp_path):
    nasty = "<script>alert(1)</script>"
    job = site.world.submit("alice", tags={"team": nasty})
    site.world.change(job["id"], message=nasty, why_pending=nasty, run_dir=str(tmp_path / "run"))
    site.write_run(tmp_path / "run")
    site.world.hold(job["id"], site.world.store.now_s() - 60)
    client = browser("alice")
    for path in ("/jobs", "/queue", "/usage?by=user&tag=team", f"/jobs/{job['id']}"):
        answer = client.get(path)
        assert nasty not in answer.text
        assert "&lt;script&gt;" in answer.text
        assert "script-src" not in answer.headers["content-security-policy"]
        assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_filters_and_older_jobs(site, browser):
    first = site.world.submit("alice", tags={"team": "early"})["id"]
    client = browser("alice")
    assert first in client.get("/jobs", params={"tag": "team=early"}).text
    assert first not in client.get("/jobs", params={"tag": "team=late"}).text
    assert "not filtered by tag" in client.get("/jobs", params={"tag": "team"}).text
    assert first not in client.get("/jobs", params={"state": "running"}).text
    assert first in client.get("/jobs", params={"text": first[:30], "state": "queued"}).text
    for _ in range(100 - len(site.world.store.jobs(JobFilter(), limit=100))):
        submitted(site.world.store, project="ads")
    assert 'rel="next"' not in client.get("/jobs").text, "one page shows all 100"
    for _ in range(100):
        submitted(site.world.store, project="ads")
    page = client.get("/jobs").text
    assert first not in page
    older = page.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    assert first in client.get(older).text


def test_lists_have_columns_for_differing_settings_and_comparisons_mark_the_best(site, browser):
    jobs = []
    for rate, auc in ((0.02, 0.71), (0.005, 0.82)):
        spec = {**SPEC, "name": "sweep", "train": {"optimizer": {"lr": rate}}}
        jobs.append(site.world.submit("alice", spec=spec)["id"])
        site.world.change(jobs[-1], progress={"valid_auc": auc})
    client = browser("alice")
    listed = client.get("/jobs", params={"text": "sweep"}).text
    names = re.findall(r'class="sort">([^<]+)<', listed)
    assert names[3:8] == ["Valid. AUC", "Rows/s", "lr", "Model", "Data"]
    assert "Owner" not in names, "all jobs have the same"
    assert re.findall(r'title="train.optimizer.lr">([\d.]+)<', listed) == ["0.005", "0.02"]
    compared = client.get("/compare", params={"job": jobs}).text
    assert re.findall(r'class="n best">([^<]+)<', compared) == ["0.82000"]
    assert re.findall(r'class="n">([^<]+)</td><td class="n best">', compared) == ["0.71000"]


def test_a_job_shows_its_validation_and_how_long_it_ran(site, browser):
    job = site.world.submit("alice")["id"]
    site.world.change(
        job, state="running", phase="handed_over", attempt=1,
        started_at_s=site.world.store.now_s() - 75,
        progress={"loss": 0.3, "auc": 0.9, "valid_loss": 0.7, "valid_auc": 0.61, "step": 50,
                  "num_steps": 200},
    )  # fmt: skip
    client = browser("alice")
    cards = dict(re.findall(r"<dt>([^<]+)</dt><dd>(.*?)</dd>", client.get(f"/jobs/{job}").text))
    assert (cards["Validation AUC"], cards["Training AUC"]) == ("0.61000", "0.90000")
    assert cards["Progress"] == "25 %"
    assert "Time left" in cards
    last = {"attempt": 1, "reason": "RankDied", "message": "killed", "step": 45}
    now = {"restarts": 1, "last_restart": last, "model_step": 40, "stopped_early_step": 50}
    site.world.change(job, attempt=2, progress={"step": 50, "valid_auc": 0.61, **now})
    text = client.get(f"/jobs/{job}").text
    assert ", 1 restart, the last after RankDied, stopped early" in text
    assert "saved step 40; stopped early at step 50" in text
    unexplained = {"restarts": 1, "last_restart": last | {"reason": ""}}
    site.world.change(job, progress=unexplained)
    assert "1 restart</dd>" in client.get(f"/jobs/{job}").text
    site.world.end(job)
    cards = dict(re.findall(r"<dt>([^<]+)</dt><dd>(.*?)</dd>", client.get(f"/jobs/{job}").text))
    assert re.fullmatch(r"1m[1-5]\ds", cards["Duration"])  # the machine may be slow


def test_a_waiting_job_shows_when_it_starts_and_a_failed_one_what_to_do(site, browser):
    store, client = site.world.store, browser("alice")
    now_s = store.now_s()
    running, waiting, failed = (site.world.submit("alice")["id"] for _ in range(3))
    running_now = {"phase": "handed_over", "state": "running", "observed_at_s": now_s}
    site.world.change(running, **running_now, progress={"eta_s": 600.0})
    site.world.change(waiting, priority=9, why_pending="all workers are busy")
    store.put_cluster("gpu", {"reachable": True, "workers": {"total": 1, "free": 0}})
    assert (
        "Starts in about 10m00s (estimated from running jobs)"
        in client.get(f"/jobs/{waiting}").text
    )
    assert re.search(rf'{waiting}".*?>10m00s<', client.get("/queue").text, re.S)
    site.world.change(running, phase="handing_over")
    text = client.get(f"/jobs/{waiting}").text
    assert "Starts in about" not in text, "a job that is handed over again holds no workers"
    ended = Attempt(failed, 1, "boot", now_s - 90, now_s, "NonFiniteLoss", "NaN\n at step 7", 7, 1)
    site.world.end(failed, "failed")
    site.world.change(failed, reason="NonFiniteLoss", message="NaN")
    write_job(store, failed, {}, [ended])
    text = client.get(f"/jobs/{failed}").text
    assert "Lower <code>train.optimizer.lr</code>" in text
    assert "<b>NonFiniteLoss</b> NaN<" in text
    assert '<rect class="bad" x="0.0" width="100.0"' in text
    assert 'class="button primary"' in text, "without a checkpoint, there is nothing to resume"


def test_links_by_state_count_live_jobs_that_the_caller_may_see(site, browser):
    state = "restarting"
    job = site.world.submit("alice", project="ads")["id"]
    now_s = site.world.store.now_s()
    site.world.change(job, phase="handed_over", state=state, observed_at_s=now_s)
    link = re.compile(rf'state={state}"[^>]*>{state} <b>(\d+)</b>')
    assert link.findall(browser("alice").get("/jobs").text) == ["1"]
    assert link.findall(browser("viewer").get("/jobs").text) == ["1"]
    assert link.findall(browser("stranger").get("/jobs").text) == []


def fields_of(client, job):
    """Fields of the form of a job by name, as they are sent."""
    form = client.get(f"/jobs/{job}/edit").text
    text = html.unescape(re.search(r"<textarea[^>]*>(.*?)</textarea>", form, re.S)[1])
    return {**dict(re.findall(r'name="(new_id)" value="([^"]+)"', form)), "spec": text}


def test_a_copy_links_to_its_parent_while_that_is_there(site, browser):
    parent, new_id = site.world.submit("alice")["id"], site.world.new_id()
    site.world.ask("alice", "POST", f"/v1/jobs/{parent}/clone", {"id": new_id})
    client, link = browser("alice"), f'href="/jobs/{parent}"'
    shown = client.get(f"/jobs/{new_id}").text
    assert (link in shown, f"Compare with {parent}" in shown) == (True, True)
    site.world.end(parent)
    site.world.store.delete(parent)
    shown = client.get(f"/jobs/{new_id}").text
    assert (link in shown, f"Compare with {parent}" in shown) == (False, False)
    assert f"copy of {parent}" in shown


def test_a_job_is_edited_and_submitted_again(site, browser):
    job = site.world.submit("alice")["id"]
    client = browser("alice")
    fields = fields_of(client, job)
    text, new_id = fields["spec"], fields["new_id"]
    elsewhere = {"Origin": "https://elsewhere.example"}
    forged = client.post(f"/jobs/{job}/edit", data=fields, headers=elsewhere)
    assert forged.status_code == 403
    assert site.world.store.job(new_id) is None
    changed = {**fields, "spec": text.replace("epochs: 1 ", "epochs: 9 ")}
    for _ in range(2):  # pressed twice
        made = client.post(f"/jobs/{job}/edit", data=changed)
        assert made.url.path == f"/jobs/{new_id}"
    new = site.world.store.job(new_id)
    assert (new.parent, new.owner) == (job, "alice")
    assert site.world.store.spec(new_id)["train"]["epochs"] == 9
    assert browser("bob").get(f"/jobs/{job}/edit").status_code == 404


@pytest.fixture
def form(site, browser):
    """Posts the form of a job of alice's with changed fields, and returns the answer."""
    job = site.world.submit("alice", tags={"team": "7e10"}, priority=3)["id"]
    client = browser("alice")
    fields = fields_of(client, job)
    return lambda **changes: client.post(f"/jobs/{job}/edit", data={**fields, **changes})


@pytest.mark.parametrize(
    "new_id",
    [".", "..", "../ads/other", "../../etc", "/etc", "a/b", "x\0y", "é", "a\nb", "a" * 300],
)
def test_the_id_of_a_form_is_no_path(site, form, new_id):
    assert form(new_id=new_id).status_code == 400
    assert site.world.store.job(new_id) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        "model: {kind: nothing}\ndata: {train: /data/x}",
        "- a",
        "a: [",
        "x: &a [*a]",
        "x: &s " + "a" * 20_000 + "\ny: [" + "*s, " * 4000 + "]",
        "x: &n " + "9" * 4000 + "\ny: [" + "*n, " * 4000 + "]",
        "tags: {1: x}",
        "2024-01-01: x",
        "tags: {x: !!binary /w==}",
        "x: 0x" + "f" * 5000,
        '"\\ud800": 1\n"\\ud800": 2',
        'name: "\\ud800"',
        "x: .nan",
        "x: !!set {a, b}",
        "[" * 20_000,  # PyYAML needs minutes to find its aliases
        "x: " + "a" * 100_000,
    ],
)
def test_a_form_with_a_bad_spec_comes_back_with_what_was_typed(form, spec):
    answer = form(spec=spec)
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("text/html")
    assert "POST /v1" not in answer.text, "that is for programs"
    shown = re.search(r"<textarea[^>]*>(.*?)</textarea>", answer.text, re.S)[1]
    assert html.unescape(shown) == spec


def test_a_form_in_a_charset_with_halves_of_surrogate_pairs_comes_back(site, browser):
    job = site.world.submit("alice")["id"]
    client = browser("alice")
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in {**fields_of(client, job), "spec": "name: \\ud800"}.items()
    ]
    answer = client.post(
        f"/jobs/{job}/edit",
        content="".join([*parts, "--x--\r\n"]),
        headers={"Content-Type": "multipart/form-data; boundary=x; charset=unicode_escape"},
    )
    assert answer.status_code == 422
    assert "Why it was rejected" in answer.text


def test_an_unchanged_form_keeps_the_tags_and_the_priority(site, form):
    job = site.world.store.job(form().url.path.rpartition("/")[2])
    assert (job.tags, job.priority) == ({"team": "7e10"}, 3)


def test_a_form_whose_id_is_taken_comes_back_with_another(form):
    first = form().url.path.rpartition("/")[2]
    other = form(spec="data: {train: /data/clicks/x}\nmodel: {kind: mlp}")
    assert other.status_code == 409
    assert f'name="new_id" value="{first}"' not in other.text


def test_a_token_that_may_only_submit_sees_no_spec(site):
    job = site.world.submit("alice")["id"]
    headers = {"Authorization": f"Bearer {site.world.token('alice', Scope.SUBMIT)}"}
    assert httpx2.get(f"{site.url}/jobs/{job}/edit", headers=headers).status_code == 403


def test_filters_are_bounded(browser):
    client = browser("alice")
    for wrong in ({"text": "x" * 50_001}, {"before": 2**63}, {"before": 2**70}):
        assert client.get("/jobs", params=wrong).status_code == 400


def test_logging_out_needs_a_page_of_the_service_and_sessions_end_with_their_token(site, browser):
    client, token = browser("alice"), site.world.token("alice")
    client.post("/login", data={"token": token})
    client.post("/logout", headers={"Origin": "https://elsewhere.example"})
    assert client.get("/jobs").url.path == "/jobs"
    site.world.revoke(token)
    assert client.get("/jobs").url.path == "/login"


def test_links_to_dashboards_are_for_admins(site, browser):
    store = site.world.store
    store.put_cluster("gpu", {"reachable": True, "url": "http://scheduler.example:8787"})
    for user, is_linked in (("alice", False), ("viewer", False), ("admin", True)):
        text = browser(user).get("/clusters").text
        assert ('href="http://scheduler.example:8787/status"' in text) is is_linked, user


def test_errors_are_pages_for_browsers(site, browser):
    client = browser("alice")
    page = {"Accept": "text/html"}
    missing = client.get("/jobs/none", headers=page).text
    assert "<h1>Not found</h1>" in missing
    assert "Log out" in missing
    unknown = client.get("/nowhere", headers=page)
    assert (unknown.status_code, "no such page" in unknown.text) == (404, True)
    assert "Log out" in unknown.text
    with httpx2.Client(base_url=site.url) as nobody:
        assert "Log out" not in nobody.get("/nowhere", headers=page).text
    for path, headers in (("/nowhere", {}), ("/v1/nowhere", page)):
        answer = client.get(path, headers=headers)
        assert answer.json()["code"] == "not_found"


def test_a_session_ends_with_its_logout(site):
    form = {"token": site.world.token("alice")}
    with httpx2.Client(base_url=site.url) as browser:
        assert browser.post("/login", data=form).status_code == 303
        copy = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
        assert httpx2.get(f"{site.url}/v1/me", headers=copy).status_code == 200
        assert browser.post("/logout").status_code == 303
        assert httpx2.get(f"{site.url}/v1/me", headers=copy).status_code == 401
        assert browser.post("/login", data=form).status_code == 303
        assert browser.get("/v1/me").status_code == 200  # a new session, and the token, hold
    bearer = {"Authorization": f"Bearer {form['token']}"}
    assert httpx2.get(f"{site.url}/v1/me", headers=bearer).status_code == 200


def test_no_answer_leads_to_the_host_that_a_header_names(site):
    answer = httpx2.get(f"{site.url}/jobs/", headers={"Host": "evil.example"})
    assert "evil.example" not in answer.headers.get("location", "")


def test_empty_pages_name_the_service_by_its_public_address(tmp_path):
    listen = {"public_url": "http://jobs.example/ads/"}
    with page_world(tmp_path, listen=listen) as site, httpx2.Client(base_url=site.url) as client:
        client.post("/login", data={"token": site.world.tokens["alice"], "next": "/jobs"})
        for path in ("/jobs", "/queue"):
            assert " --server http://jobs.example/ads" in client.get(path).text
