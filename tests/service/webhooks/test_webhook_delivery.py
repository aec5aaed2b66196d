"""Events to receivers that behave, and to those that do not, from a real database."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from scripted_service import Reply, ScriptedService, Seen
from service_store import new_store, submitted
from waiting import until

from distrain.service.reconcile.reconciler import Reconciler
from distrain.service.settings import Settings, Webhooks
from distrain.service.store.auditing import Webhook
from distrain.service.store.store import Store
from distrain.service.values import Job, Lease, Role
from distrain.service.webhooks import delivering as module
from distrain.service.webhooks.delivering import Deliverer
from distrain.service.webhooks.posting import send, signature, webhook_secret

KEY = b"k" * 32
LOCAL = Webhooks(allow_private=("127.0.0.1",))
DOCS = Path(__file__).parents[3] / "docs"


class Held:
    """A process's leases."""

    def __init__(self, store: Store, owner: str):
        self.store, self.owner = store, owner
        self.lease: Lease | None = None

    def hold_at_times(self, name: str) -> Lease | None:
        self.lease = self.lease or self.store.take_lease(name, self.owner, 600)
        return self.lease

    def held(self, name: str) -> Lease | None:
        return self.lease


@dataclass
class World:
    """A database, and deliverers on it."""

    settings: Settings
    store: Store
    made: int = field(default=0)

    def hook(self, url: str, *, owner: str = "alice", kinds: tuple[str, ...] = ()) -> str:
        self.made += 1
        hook_id = f"hook{self.made}"
        cursor, now_s = self.store.last_seq(), self.store.now_s()
        self.store.put_webhook(Webhook(hook_id, "default", owner, url, kinds, cursor, now_s))
        return hook_id

    def row(self, hook_id: str) -> Webhook:
        found = self.store.webhook(hook_id)
        assert found is not None
        return found

    def job(self, owner: str = "alice") -> Job:
        job = submitted(self.store, owner=owner)
        lease = self.store.take_lease("publisher", "test", 600)
        assert lease is not None
        self.store.publish(lease)
        return job

    @contextmanager
    def delivering(self, owner: str = "one") -> Iterator[Deliverer]:
        """A deliverer that looks all the time, in a thread."""
        held, end = Held(self.store, owner), threading.Event()
        deliverer = Deliverer(self.store, self.settings, lambda: KEY, held)

        def look() -> None:
            while not end.wait(0.01):
                deliverer()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield deliverer
        finally:
            end.set()
            thread.join()
            deliverer.close()
            if held.lease is not None:
                self.store.release(held.lease)


def receiving(status: Callable[[str], int] = lambda path: 200) -> ScriptedService:
    """A receiver that answers with a status by path; 0: it dies without an answer."""

    def answer(seen: Seen) -> Reply:
        found = status(seen.path)
        return Reply(found, headers={"Location": "/elsewhere"}, drop=not found)

    return ScriptedService(answer)


def ids(receiver: ScriptedService, path: str = "/") -> list[str]:
    """The events' ids that came to a path."""
    return [seen.headers["distrain-event-id"] for seen in list(receiver.seen) if seen.path == path]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    settings = Settings(data_dir=tmp_path, webhooks=LOCAL)
    with new_store(settings) as store:
        for user, role in {"alice": Role.SUBMITTER, "bob": Role.SUBMITTER}.items():
            store.set_member("default", user, role)
        yield World(settings, store)


def test_events_arrive_in_order_signed_as_the_page_says(world: World):
    with receiving() as receiver, world.delivering():
        hook_id = world.hook(receiver.address + "/")
        jobs = [world.job() for _ in range(5)]
        until(lambda: world.row(hook_id).cursor == 5)
    checked = _check_of_the_page()
    secret = webhook_secret(KEY, hook_id)
    for seen, job in zip(receiver.seen, jobs, strict=True):
        told, body = seen.body, seen.raw
        headers = {name.title(): value for name, value in seen.headers.items()}
        assert (told["data"]["id"], told["kind"]) == (job.id, "job.state")
        assert (told["id"], told["webhook"]) == (headers["Distrain-Event-Id"], hook_id)
        assert checked(secret, headers, body)
        assert not checked(secret, headers, body + b" ")
        assert not checked(webhook_secret(KEY, "other"), headers, body)
        late = headers | {"Distrain-Timestamp": "1700000000"}
        late["Distrain-Signature"] = signature(secret, "1700000000", body)
        assert not checked(secret, late, body)


def _check_of_the_page() -> Any:
    page = (DOCS / "service-api.md").read_text()
    found = re.search(r"```python\n(# check of a webhook's signature\n.*?)```", page, re.S)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    return names["is_from_distrain"]


def test_others_jobs_and_kinds_are_not_told(world: World):
    with receiving() as receiver, world.delivering():
        hook_id = world.hook(receiver.address + "/")
        world.hook(receiver.address + "/deleted", kinds=("job.deleted",))
        world.job("bob")
        mine = world.job("alice")
        until(lambda: receiver.seen)
        assert receiver.seen[0].body["data"]["id"] == mine.id
        until(lambda: world.row(hook_id).cursor == 2)
        # Whoever has left the project is told nothing more.
        world.store.remove_member("default", "alice")
        world.hook(receiver.address + "/bob", owner="bob")
        world.job("alice")
        last = world.job("bob")
        until(lambda: ids(receiver, "/bob"))
        assert receiver.seen[-1].body["data"]["id"] == last.id
    assert len(receiver.seen) == 2


@pytest.mark.parametrize("status", [500, 302, 0])
def test_a_failure_is_told_and_tried_again_with_the_same_id(
    world: World, monkeypatch: pytest.MonkeyPatch, status: int
):
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.01)
    bad = threading.Event()
    with receiving(lambda path: 200 if bad.is_set() else status) as receiver, world.delivering():
        hook_id = world.hook(receiver.address + "/")
        world.job()
        world.job()
        until(lambda: world.row(hook_id).failures >= 2)
        failing = world.row(hook_id)
        assert failing.cursor == 0
        assert failing.error
        assert failing.failing_since_s
        assert str(status) in failing.error or not status
        bad.set()
        until(lambda: world.row(hook_id).cursor == 2)
    row = world.row(hook_id)
    assert (row.failures, row.error, row.failing_since_s) == (0, None, None)
    told = ids(receiver)
    assert (len(set(told)), told) == (2, sorted(told))
    assert not ids(receiver, "/elsewhere")


def test_killed_between_delivery_and_the_cursor_it_is_sent_again_with_its_id(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    class Killed(BaseException):
        pass

    def dies(*args: Any, **kwargs: Any) -> None:
        raise Killed

    with receiving() as receiver:
        hook_id = world.hook(receiver.address + "/")
        world.job()
        held = Held(world.store, "first")
        first = Deliverer(world.store, world.settings, lambda: KEY, held)
        assert held.hold_at_times("webhooks") is not None
        with monkeypatch.context() as patched:
            patched.setattr(world.store, "move_webhook", dies)
            with pytest.raises(Killed):
                first._turn(hook_id)
        assert world.row(hook_id).cursor == 0
        world.store.release(held.lease)
        with world.delivering("second"):
            until(lambda: world.row(hook_id).cursor == 1)
    (one, again) = ids(receiver)
    assert one == again


def test_a_lost_lease_moves_no_cursor(world: World):
    with receiving() as receiver:
        hook_id = world.hook(receiver.address + "/")
        world.job()
        held = Held(world.store, "first")
        lease = held.hold_at_times("webhooks")
        assert lease is not None
        world.store.release(lease)
        assert world.store.take_lease("webhooks", "second", 600) is not None
        late = Deliverer(world.store, world.settings, lambda: KEY, held)
        late._hand_out(hook_id)
        until(lambda: receiver.seen)
        late.close()
        assert world.row(hook_id).cursor == 0


def test_a_hung_receiver_delays_no_other(world: World):
    go_on = threading.Event()

    def answer(path: str) -> int:
        if path == "/hung":
            go_on.wait(120)
        return 200

    with receiving(answer) as receiver, world.delivering():
        for _ in range(3):
            world.hook(receiver.address + "/hung")
        hook_id = world.hook(receiver.address + "/")
        for _ in range(10):
            world.job()
        until(lambda: world.row(hook_id).cursor == 10)
        assert len(ids(receiver, "/hung")) <= 3
        go_on.set()


def test_a_receiver_that_hangs_is_cut():
    go_on = threading.Event()
    with receiving(lambda path: 200 if go_on.wait(120) else 500) as receiver:
        told = send(receiver.address, "s", "1", b"{}", allow_private=["127.0.0.1"], timeout_s=1.0)
        go_on.set()
    assert told.status is None
    assert told.error


def test_a_clock_that_was_put_back_delays_no_further_try(world: World):
    with receiving(lambda path: 200) as receiver:
        hook_id = world.hook(receiver.address + "/")
        world.job()
        tomorrow_s = world.store.now_s() + 86400
        world.store.move_webhook(hook_id, cursor=0, failures=1, next_at_s=tomorrow_s)
        with world.delivering():
            until(lambda: world.row(hook_id).cursor == 1)


def test_it_is_given_up_after_three_days_and_when_events_were_pruned(world: World):
    with receiving(lambda path: 500) as receiver:
        failed = world.hook(receiver.address + "/")
        pruned = world.hook(receiver.address + "/pruned")
        world.job()
        long_ago_s = world.store.now_s() - 3 * 86400 - 1
        world.store.move_webhook(failed, cursor=0, failures=80, failing_since_s=long_ago_s)
        with world.delivering():
            until(lambda: world.row(failed).disabled_at_s)
            until(lambda: world.row(pruned).failures)
    assert "500" in (world.row(failed).error or "")
    world.job()
    with world.store.db.write() as connection:
        connection.exec_driver_sql("DELETE FROM events WHERE seq = 1")
    world.store.move_webhook(pruned, cursor=0)
    with world.delivering("other"):
        until(lambda: world.row(pruned).disabled_at_s)
    assert "pruned" in (world.row(pruned).error or "")


def test_private_addresses_are_refused_again_at_delivery(tmp_path: Path):
    with receiving() as receiver, new_store(Settings(data_dir=tmp_path)) as store:
        store.set_member("default", "alice", Role.SUBMITTER)
        world = World(Settings(data_dir=tmp_path), store)
        hook_id = world.hook(receiver.address + "/")
        world.job()
        with world.delivering():
            until(lambda: world.row(hook_id).failures)
        assert not receiver.seen
        assert "not public" in (world.row(hook_id).error or "")


def test_the_reconciler_delivers(world: World):
    settings = world.settings.model_copy(update={"clusters": {}})
    with receiving() as receiver:
        hook_id = world.hook(receiver.address + "/")
        stop = threading.Event()
        reconciler = Reconciler(settings, world.store)
        thread = threading.Thread(target=reconciler.run, args=(stop,))
        thread.start()
        try:
            submitted(world.store)
            until(lambda: world.row(hook_id).cursor == 1)
        finally:
            stop.set()
            thread.join()
    assert len(receiver.seen) == 1
