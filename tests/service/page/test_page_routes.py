"""The pages as a browser without scripts gets them: who sees what, and what is refused."""

import os
import re

import httpx2
import pytest
from page_world import page_world
from service_store import submitted

from distrain.service.access.sessions import COOKIE
from distrain.service.api.guards import RequestRates


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with page_world(tmp_path_factory.mktemp("page")) as found:
        yield found


@pytest.fixture
def browser(site):
    """Signs on, and keeps cookies."""
    opened = []

    def sign_on(user):
        client = httpx2.Client(base_url=site.url, follow_redirects=True)
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
        compared = client.get(f"/jobs/{mine}", params={"with": job})
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


def test_a_run_directory_full_of_traps_holds_up_no_page(site, browser, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret.log").write_text("x")
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "a").symlink_to(elsewhere)
    (run / "model").symlink_to(elsewhere)
    (run / "spec.yaml").write_text("name: clicks")
    job = site.world.submit("alice")["id"]
    site.world.change(job, run_dir=str(run))
    client = browser("alice")
    metrics = run / "metrics.jsonl"
    os.mkfifo(metrics)  # whoever opens it to read waits for a writer
    text = client.get(f"/jobs/{job}").text
    assert "spec.yaml" in text
    assert "secret" not in text
    metrics.unlink()
    with metrics.open("wb") as file:
        file.truncate(2**40)
    assert client.get(f"/jobs/{job}").status_code == 200  # nothing like all of it was read
    for line in (
        '{"split": []}',
        '{"split": "train", "step": "<b>", "seconds": 7}',
        "[" * 9999,
        "x",
    ):
        metrics.write_text(line + "\n")
        assert client.get(f"/jobs/{job}").status_code == 200
    metrics.unlink()
    metrics.symlink_to("/dev/zero")
    assert client.get(f"/jobs/{job}").status_code == 200


def test_filters_and_older_jobs(site, browser):
    first = site.world.submit("alice", tags={"team": "early"})["id"]
    client = browser("alice")
    assert first in client.get("/jobs", params={"tag": "team=early"}).text
    assert first not in client.get("/jobs", params={"tag": "team=late"}).text
    assert first not in client.get("/jobs", params={"state": "running"}).text
    assert first in client.get("/jobs", params={"text": first[:30], "state": "queued"}).text
    for _ in range(100):
        submitted(site.world.store, project="ads")
    page = client.get("/jobs").text
    assert first not in page
    older = page.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    assert first in client.get(older).text


def test_specs_are_compared(site, browser):
    spec = {"name": "clicks", "data": {"train": "/data/clicks/day_*"}, "model": {"kind": "mlp"}}
    one = site.world.submit("alice")["id"]
    two = site.world.submit("alice", spec={**spec, "train": {"epochs": 7}})["id"]
    text = browser("alice").get(f"/jobs/{one}", params={"with": two}).text
    assert "train.epochs" in text
    assert "train.seed" not in text.split("spec.yaml")[0]


def test_validation_stands_beside_training_with_times_of_a_job(site, browser, tmp_path):
    job = site.world.submit("alice")["id"]
    site.world.change(
        job, run_dir=str(tmp_path / "none"), state="running", phase="handed_over", attempt=1,
        started_at_s=site.world.store.now_s() - 75,
        progress={"loss": 0.3, "auc": 0.9, "valid_loss": 0.7, "valid_auc": 0.61},
    )  # fmt: skip
    client = browser("alice")
    text = client.get(f"/jobs/{job}").text
    assert "<dt>Validation</dt><dd>loss 0.70000, AUC 0.61000</dd>" in text
    assert "<dt>Training</dt><dd>loss 0.30000, AUC 0.90000</dd>" in text
    assert "No records yet." in text
    site.world.end(job)
    text = client.get(f"/jobs/{job}").text
    assert re.search(r"<dt>Duration</dt><dd>1m[1-5]\ds</dd>", text)  # the machine may be slow
    assert "<dt>Ended</dt>" in text
    assert "No records yet." not in text
    assert "ended before its first report" in text


def test_several_jobs_are_compared_from_the_list(site, browser):
    ids = [site.world.submit("alice")["id"] for _ in range(3)]
    client = browser("alice")
    found = client.get("/compare", params={"job": ids})
    assert found.url.path == f"/jobs/{ids[0]}"
    assert f'data-jobs="{" ".join(ids)}"' in found.text
    assert client.get("/compare").url.path == "/jobs"


def test_logging_out_needs_the_forms_own_token(site, browser):
    client = browser("alice")
    client.post("/logout", data={"csrf": "forged"})
    assert client.get("/jobs").url.path == "/jobs"
    page = client.get("/jobs").text
    csrf = page.split('name="csrf" value="')[1].split('"')[0]
    client.post("/logout", data={"csrf": csrf})
    assert client.get("/jobs").url.path == "/login"
    token = site.world.token("alice")
    client.post("/login", data={"token": token})
    assert client.get("/jobs").url.path == "/jobs"
    site.world.revoke(token)
    assert client.get("/jobs").url.path == "/login", "its sessions end with a token"


def test_links_to_dashboards_are_for_admins(site, browser):
    store = site.world.store
    store.put_cluster("gpu", {"reachable": True, "url": "http://scheduler.example:8787"})
    for user, is_linked in (("alice", False), ("viewer", False), ("admin", True)):
        text = browser(user).get("/clusters").text
        assert ('href="http://scheduler.example:8787/status"' in text) is is_linked, user


def test_a_session_ends_with_its_logout(site):
    form = {"token": site.world.token("alice")}
    with httpx2.Client(base_url=site.url) as browser:
        assert browser.post("/login", data=form).status_code == 303
        copy = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
        assert httpx2.get(f"{site.url}/v1/me", headers=copy).status_code == 200
        csrf = re.search(r'name="csrf" value="([^"]+)"', browser.get("/jobs").text)[1]
        assert browser.post("/logout", data={"csrf": csrf}).status_code == 303
        assert httpx2.get(f"{site.url}/v1/me", headers=copy).status_code == 401
        assert browser.post("/login", data=form).status_code == 303
        assert browser.get("/v1/me").status_code == 200  # a new session, and the token, hold
    bearer = {"Authorization": f"Bearer {form['token']}"}
    assert httpx2.get(f"{site.url}/v1/me", headers=bearer).status_code == 200


def test_strangers_do_not_keep_users_from_logging_in(site, monkeypatch):
    # Behind a proxy all have one address.
    monkeypatch.setattr(site.world.app.state.parts, "strangers", RequestRates(0.001))
    for status in (401, 429, 429):
        answer = httpx2.post(f"{site.url}/login", data={"token": "dtr_wrong"})
        assert answer.status_code == status
    token = site.world.tokens["alice"]
    assert httpx2.post(f"{site.url}/login", data={"token": token}).status_code == 303


@pytest.mark.parametrize("before", [2**63, 2**70])
def test_numbers_in_addresses_are_bounded(browser, before):
    assert browser("alice").get("/jobs", params={"before": before}).status_code == 400


def test_no_answer_leads_to_the_host_that_a_header_names(site):
    answer = httpx2.get(f"{site.url}/jobs/", headers={"Host": "evil.example"})
    assert "evil.example" not in answer.headers.get("location", "")
