"""Leases of a process that has ended are taken at once; of one that stands still they run out."""

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from distrain.service import settings
from distrain.service.reconcile.lease_holder import OwnLeases, has_ended, owner_name
from distrain.service.settings import Settings
from distrain.service.store.store import Store, migrate, open_store
from distrain.workers.cluster_file import ProcessId


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    settings = Settings(data_dir=tmp_path)
    migrate(settings)
    with open_store(settings) as store:
        yield store


def _owner(pid: int) -> str:
    """The name that another process would take on this machine."""
    host, _, _, machine, token = owner_name().rsplit(":", 4)
    process = ProcessId.of(pid)
    assert process is not None
    return f"{host}:{pid}:{process.started_ticks}:{machine}:{token}"


@contextmanager
def _unreadable(path: str) -> Iterator[None]:
    read = Path.read_text

    def fails(self: Path, *words: Any, **options: Any) -> str:
        if str(self) == path:
            raise OSError(errno.EMFILE, "Too many open files")
        return read(self, *words, **options)

    with mock.patch.object(Path, "read_text", fails):
        yield


def test_only_a_process_of_this_machine_that_is_gone_has_ended() -> None:
    assert owner_name() != owner_name()
    assert not has_ended(owner_name())
    with subprocess.Popen(["sleep", "60"]) as process:
        name = _owner(process.pid)
        host, pid, started, machine, token = name.rsplit(":", 4)
        process.send_signal(signal.SIGSTOP)
        assert not has_ended(name)
        assert has_ended(f"{host}:{pid}:{int(started) - 1}:{machine}:{token}")  # its number alone
        with _unreadable(f"/proc/{pid}/stat"):
            assert not has_ended(name)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(name)  # nobody has waited for it yet
    assert has_ended(name)
    assert not has_ended(f"{host}:{pid}:{started}:{12 * '0'}:{token}")  # of another machine
    for odd in ("", "test", "a:b:c:d", f"{host}:x:y:{machine}:{token}", f"h:-1:1:{machine}:t"):
        assert not has_ended(odd)


def test_the_lease_of_a_process_that_has_ended_is_taken_at_once(store: Store) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        first = OwnLeases(store, _owner(process.pid), has_ended=has_ended)
        second = OwnLeases(store, owner_name(), has_ended=has_ended)
        before = first.hold("cluster:east")
        assert before is not None
        assert second.hold("cluster:east") is None
        process.kill()
        process.wait()
        after = second.hold("cluster:east")
        assert after is not None
        assert after.generation == before.generation + 1
    first.renew_all()
    assert store.lease_owner("cluster:east") == after.owner
    assert store.lease_owner("cluster:west") is None


def test_leases_are_renewed_together_and_one_that_was_lost_is_dropped(store: Store) -> None:
    now_s = 0.0
    mine = OwnLeases(store, "mine", clock=lambda: now_s)
    names = ("cluster:east", "cluster:west", "publisher")
    before = {name: mine.hold(name) for name in names}
    assert store.take_lease("cluster:west", "theirs", ended="mine") is not None
    mine.renew_all()  # too early
    assert mine.held("cluster:west") is not None
    now_s = 6.0
    mine.renew_all()
    assert mine.held("cluster:west") is None
    for name in ("cluster:east", "publisher"):
        lease, old = mine.must_hold(name), before[name]
        assert old is not None
        assert lease.generation == old.generation
        assert lease.expires_at_s > old.expires_at_s
    now_s = 19.9
    assert mine.held("publisher") is not None
    now_s = 20.0
    assert mine.held("publisher") is None


def test_a_lease_is_prolonged_before_it_is_trusted_no_longer(store: Store) -> None:
    now_s = 0.0
    mine = OwnLeases(
        store, "mine", lambda: now_s, settings.Leases(ttl_s=15.0, renew_s=8.0, margin_s=1.0)
    )
    mine.hold("cluster:east")
    now_s = 13.0
    mine.hold("cluster:east")
    now_s = 20.0
    assert mine.held("cluster:east") is not None
