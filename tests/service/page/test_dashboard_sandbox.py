"""The dashboard of a cluster whose scheduler somebody has taken over harms nobody's session."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from api_world import World
from page_world import PageWorld, page_world
from scripted_service import Reply, ScriptedService, Seen

from distrain.service.settings import ClusterProfile

STEALS = """<html><title>untouched</title><script>
fetch('/v1/me', {credentials: 'include'}).then(a => a.json())
  .then(me => { document.title = 'stolen ' + me.user })
  .catch(error => { document.title = 'refused' })
</script></html>"""


def hijacked(seen: Seen) -> Reply:
    """The answer of a scheduler's HTTP server in other hands."""
    headers = {"Content-Type": "text/html", "Content-Security-Policy": "default-src *"}
    headers["Set-Cookie"] = "distrain_session=theirs"
    if seen.path.startswith("/away"):
        to = "/\\evil.example" if "b" in seen.path else "//evil.example"
        return Reply(302, b"", headers | {"Location": to})
    return Reply(200, STEALS.encode(), headers)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageWorld]:
    with ScriptedService(hijacked) as server:
        profile = ClusterProfile(url=server.address)
        with page_world(tmp_path_factory.mktemp("page"), clusters={"gpu": profile}) as found:
            yield found


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


def test_a_ticket_ends_with_the_logout(site: PageWorld) -> None:
    with signed_on(site, site.world.token("admin")) as client:
        addresses = [str(client.get("/clusters/gpu/dashboard/status").url)]
        csrf = re.search(r'name="csrf" value="([^"]+)"', client.get("/jobs").text)[1]
        client.post("/logout", data={"csrf": csrf}).raise_for_status()
    with signed_on(site, site.world.token("admin")) as client:
        addresses += [str(client.get("/clusters/gpu/dashboard/status").url)]
    assert [httpx2.get(one).status_code for one in addresses] == [404, 200]


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
