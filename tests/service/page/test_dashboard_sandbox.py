"""The dashboard of a cluster whose scheduler somebody has taken over harms nobody's session."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from api_world import World
from bare_scheduler import bare_scheduler
from page_world import PageWorld, page_world

from distrain.service.settings import ClusterProfile

STEALS = """<html><title>untouched</title><script>
fetch('/v1/me', {credentials: 'include'}).then(a => a.json())
  .then(me => { document.title = 'stolen ' + me.user })
  .catch(error => { document.title = 'refused' })
</script></html>"""


class Hijacked(BaseHTTPRequestHandler):
    """A scheduler's HTTP server in other hands."""

    def do_GET(self) -> None:
        moved = self.path.startswith("/away")
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header(
                "Location", "/\\evil.example" if "b" in self.path else "//evil.example"
            )
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Security-Policy", "default-src *")
        self.send_header("Set-Cookie", "distrain_session=theirs")
        self.send_header("Content-Length", "0" if moved else str(len(STEALS)))
        self.end_headers()
        if not moved:
            self.wfile.write(STEALS.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageWorld]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hijacked)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    profile = ClusterProfile(url=f"http://127.0.0.1:{server.server_port}")
    try:
        with page_world(tmp_path_factory.mktemp("page"), clusters={"gpu": profile}) as found:
            yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def signed_on(site: PageWorld, token: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=site.url, follow_redirects=True) as client:
        assert client.post("/login", data={"token": token}).status_code == 200
        yield client


def test_a_dashboard_is_shown_in_a_sandbox_and_sets_nothing(site: PageWorld) -> None:
    with signed_on(site, site.world.tokens["admin"]) as client:
        answer = client.get("/clusters/gpu/dashboard/status?a=1")
        assert answer.status_code == 200
        assert answer.url.path.startswith("/dashboards/")
        assert answer.url.params["a"] == "1"
        assert "sandbox allow-scripts;" in answer.headers["content-security-policy"]
        assert "allow-same-origin" not in answer.headers["content-security-policy"]
        assert "set-cookie" not in answer.headers
        for page in ("away", "away-b"):
            assert client.get(f"/clusters/gpu/dashboard/{page}").status_code == 502
        assert client.get("/clusters/gpu/dashboard/a%0d%0ab%00").status_code < 500


def test_a_ticket_ends_with_its_token_and_opens_one_dashboard(site: PageWorld) -> None:
    world: World = site.world
    token = world.token("admin")
    with signed_on(site, token) as client:
        address = str(client.get("/clusters/gpu/dashboard/status").url)
    assert httpx2.get(address).status_code == 200
    world.revoke(token)
    assert httpx2.get(address).status_code == 404
    ticket = address.split("/dashboards/")[1].split("/")[0]
    assert httpx2.get(f"{site.url}/dashboards/{ticket[:-1]}0/status").status_code == 404
    assert httpx2.get(f"{site.url}/dashboards/x/status").status_code == 404


@pytest.mark.slow
def test_scripts_of_a_dashboard_have_no_part_in_the_session(site: PageWorld, browser: Any) -> None:
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"{site.url}/login")
        page.fill("input[name=token]", site.world.tokens["admin"])
        page.press("input[name=token]", "Enter")
        page.wait_for_url("**/jobs")
        page.goto(f"{site.url}/clusters/gpu/dashboard/status")
        page.wait_for_function("document.title != 'untouched'")
        assert page.title() == "refused"
    finally:
        context.close()


@pytest.mark.slow
def test_a_real_dashboard_draws_in_the_sandbox(tmp_path: Any, browser: Any) -> None:
    with bare_scheduler(tmp_path) as scheduler:
        profile = ClusterProfile(url=scheduler.url)
        with page_world(tmp_path / "site", clusters={"gpu": profile}) as site:
            context = browser.new_context()
            try:
                page = context.new_page()
                page.goto(f"{site.url}/login")
                page.fill("input[name=token]", site.world.tokens["admin"])
                page.press("input[name=token]", "Enter")
                page.wait_for_url("**/jobs")
                page.goto(f"{site.url}/clusters/gpu/dashboard/status")
                page.wait_for_function("window.Bokeh && Bokeh.documents.length > 0")
            finally:
                context.close()
