"""Checks of specs: at most two at once, bounded in time, forgotten after a while."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from monitored import beside
from order_site import SPEC, OrderSite, new_order_site, no_token as no_token
from psutil import Process

from distrain.scheduler.http import preflight as preflight_module
from distrain.scheduler.http.bodies import Refusal
from distrain.workers import spec_check


def program(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Run something else than `distrain plan`, which takes seconds to load."""
    monkeypatch.setattr(spec_check, "_PROGRAM", text)


async def result(site: OrderSite, preflight_id: str) -> dict[str, Any]:
    for _ in range(3000):
        document = site.api.preflights.document(preflight_id)
        if document["state"] not in ("waiting", "running"):
            return document
        await asyncio.sleep(0.01)
    raise AssertionError("the check did not end")


def children() -> set[int]:
    return {child.pid for child in Process().children()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "state", "error"),
    [
        ('print(\'{"rows": 3, "notes": ["n"]}\')', "passed", None),
        ('print(\'{"errors": [{"message": "m"}]}\'); raise SystemExit(1)', "failed", None),
        ("raise SystemExit('no such thing')", "lost", "exit code 1: no such thing"),
        ("print('x' * 3000)", "lost", "exit code 0"),
        ("import time; time.sleep(60)", "lost", "did not end within 2 s"),
    ],
)
def test_every_end_of_a_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, state: str, error: str | None
) -> None:
    program(monkeypatch, text)
    if "sleep" in text:
        monkeypatch.setattr(preflight_module, "LIMIT_S", 2.0)
    before = children()

    @beside(partial(new_order_site, num_workers=1))
    async def story(site: OrderSite) -> None:
        document = await result(site, site.api.preflights.start(SPEC))
        assert document["state"] == state
        assert (error or "") in (document["error"] or "")
        assert document["notes"] == (["n"] if state == "passed" else [])

    story()
    assert not children() - before


@beside(partial(new_order_site, num_workers=1))
async def test_two_at_once_and_a_worker_stays_free_for_ranks(
    site: OrderSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait = f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    program(monkeypatch, f"import os, time\n{wait}\nprint('{{}}')")

    before = children()  # of other tests of this process: a resource tracker, a forkserver
    preflights = site.api.preflights
    ids = [preflights.start(SPEC) for _ in range(4)]
    while len(children() - before) < 2:
        await asyncio.sleep(0.01)
    states = [preflights.document(one)["state"] for one in ids]
    assert states == ["running", "running", "waiting", "waiting"]
    client = await site.coordinator.gangs.client()
    assert await client.submit(len, "a rank", pure=False).result() == 6
    gate.touch()
    assert [(await result(site, one))["state"] for one in ids] == ["passed"] * 4


@beside(partial(new_order_site, num_workers=1))
async def test_checks_of_one_owner_leave_room_for_those_of_others(
    site: OrderSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A glob over a large folder takes as long as a check may."""
    program(monkeypatch, "import time; time.sleep(60)")
    preflights = site.api.preflights
    most = preflight_module.MOST_OF_OWNER
    slow = [preflights.start(SPEC, "mallory") for _ in range(most)]
    with pytest.raises(Refusal):
        preflights.start(SPEC, "mallory")
    other = preflights.start(SPEC, "alice")
    while preflights.document(other)["state"] == "waiting":
        await asyncio.sleep(0.01)
    with pytest.raises(Refusal):
        preflights.document(other, "mallory")
    states = [preflights.document(one, "mallory")["state"] for one in slow]
    assert states == ["running"] + ["waiting"] * (most - 1)


@pytest.mark.slow
@beside(new_order_site)
async def test_too_many_are_refused_old_ones_forgotten_and_no_worker_is_said(
    site: OrderSite,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preflight_module, "WORKER_WITHIN_S", 1.0)
    monkeypatch.setattr(preflight_module, "LIMIT_S", 1.0)
    now_s = 0.0
    preflights = preflight_module.Preflights(site.coordinator.gangs.client, lambda: now_s)
    ids = [preflights.start(SPEC) for _ in range(preflight_module.MOST_WAITING)]
    with pytest.raises(Refusal):
        preflights.start(SPEC)
    site.api.preflights = preflights
    document = await result(site, ids[0])
    assert document["state"] == "lost"
    assert "no worker was free" in document["error"]
    now_s = preflight_module.KEPT_S - 1
    assert preflights.document(ids[0])["state"] == "lost"
    now_s += 2
    with pytest.raises(Refusal):
        preflights.document(ids[0])
