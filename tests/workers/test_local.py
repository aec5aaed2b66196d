"""What a cluster of this machine is started with."""

import asyncio
import copy
import logging
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import dask
import distributed
import pytest
from distributed import Status
from distributed.process import AsyncProcess
from waiting import until

from distrain.errors import ClusterError
from distrain.workers import local
from distrain.workers.local import dashboard_link, local_cluster, local_threads
from distrain.workers.worker_replacement import GIVE_UP_S, WorkerReplacer, nannies_kept, why_lost

FORKS = """
import os, signal, time
from multiprocessing import get_context
from distrain.workers.local import begin_imports

def names():
    return {name: os.environ.get(name) for name in ("PYTHONSAFEPATH", "OMP_NUM_THREADS")}

if __name__ == "__main__":
    begin_imports()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for _ in range(5):
        os.killpg(os.getpgrp(), signal.SIGINT)  # as Ctrl-C
        time.sleep(0.2)
    with get_context("forkserver").Pool(1) as pool:
        print(pool.apply(names), names())
"""


def test_the_process_that_imports_keeps_off_the_current_folder_and_ctrl_c(tmp_path):
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "yaml.py").write_text("raise SystemExit('a module of the user')")
    (tmp_path / "forks.py").write_text(FORKS)
    unset = ("PYTHONSAFEPATH", "OMP_NUM_THREADS")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "forks.py")],
        cwd=tmp_path / "cwd",
        env={name: value for name, value in os.environ.items() if name not in unset},
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ours = {"PYTHONSAFEPATH": None, "OMP_NUM_THREADS": None}
    assert done.stderr == ""
    assert done.stdout == f"{dict.fromkeys(ours, '1')} {ours}\n"


def test_scheduler_and_workers_are_told_to_do_little_by_the_clock(monkeypatch):
    found = {}

    class Started(BaseException):
        """Far enough."""

    def starts(**_):
        found.update(copy.deepcopy(dask.config.get("distributed")))
        raise Started

    monkeypatch.setattr(distributed, "LocalCluster", starts)
    before = dask.config.get("distributed.worker.profile.enabled")
    with pytest.raises(Started), local_cluster(2, 1, "cpu", ":0"):
        pass
    # Three timers, which took a tenth of a core together with two workers.
    assert found["worker"]["profile"]["enabled"] is False
    assert found["admin"]["system-monitor"]["interval"] == "2s"
    assert found["admin"]["tick"]["interval"] == "500ms"
    assert dask.config.get("distributed.worker.profile.enabled") == before


@pytest.mark.slow
def test_a_local_cluster_replaces_workers_whatever_ended_them():
    # A nanny that gave up, and a worker process that takes longer to come back than Dask waits.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"}),
        local_cluster(2, 1, "cpu", ":0") as client,
    ):
        nannies = list(client.cluster.workers.values())
        before = set(client.scheduler_info()["workers"])
        client.sync(nannies[0].close)
        os.kill(nannies[1].process.pid, signal.SIGKILL)
        until(lambda: len(set(client.scheduler_info()["workers"]) - before) == 2)
        assert client.submit(sum, [1, 2]).result() == 3


@pytest.mark.slow
def test_a_local_cluster_closes_while_a_new_worker_process_hangs(monkeypatch):
    hung, start = [], AsyncProcess.start

    async def starts_and_hangs(process):
        await start(process)
        os.kill(process.pid, signal.SIGSTOP)
        hung.append(process.pid)

    with local_cluster(2, 1, "cpu", ":0") as client:
        nannies = list(client.cluster.workers.values())
        monkeypatch.setattr(AsyncProcess, "start", starts_and_hangs)
        client.sync(nannies[0].close)  # its successor is started anew
        os.kill(nannies[1].process.pid, signal.SIGKILL)  # and here by the nanny
        until(lambda: len(hung) == 2)


class FakeProcess:
    def __init__(self):
        self.process, self.kills = self, 0

    async def kill(self):
        self.kills += 1


class FakeNanny:
    def __init__(self, status):
        self.status, self.process = status, FakeProcess()

    def __await__(self):
        return asyncio.Event().wait().__await__()  # its process never comes up


class FakeCluster:
    """A cluster whose worker 0 never reaches the scheduler."""

    def __init__(self, nanny, fails):
        self.worker_spec, self.workers = {0: {"cls": self.started}}, {0: nanny}
        self.scheduler = SimpleNamespace(
            workers={}, close=self.close, contact_address=None, address="tcp://h:1"
        )
        self.fails, self.starts, self.closed = fails, 0, False
        self.distrain_replacer: WorkerReplacer | None = None

    def started(self, address, name):
        self.starts += 1
        if self.fails:
            raise OSError("Cannot allocate memory")
        self.nanny = FakeNanny(Status.init)
        return self.nanny

    async def close(self, reason):
        self.closed = True


@pytest.mark.parametrize("how", ["restart hangs", "start fails", "start hangs"])
def test_a_worker_that_never_comes_back_ends_the_cluster_with_a_reason(how):
    nanny = FakeNanny(Status.running if how == "restart hangs" else Status.failed)
    cluster = FakeCluster(nanny, how == "start fails")
    replacer = WorkerReplacer(cluster)
    cluster.distrain_replacer = replacer

    async def checks():
        for now_s in range(int(GIVE_UP_S) + 1):
            assert not cluster.closed
            await replacer.check(float(now_s))
            await asyncio.sleep(0)

    asyncio.run(checks())
    assert cluster.closed
    reason = why_lost(SimpleNamespace(cluster=cluster))
    if how == "start fails":
        assert 10 < cluster.starts < 40
        assert "Cannot allocate memory" in reason
    else:  # a killed process lets its nanny go on
        assert (nanny if how == "restart hangs" else cluster.nanny).process.kills == 2
        assert cluster.starts == (how == "start hangs")
        assert reason is not None


def test_a_cluster_whose_other_workers_have_work_goes_on():
    cluster = FakeCluster(FakeNanny(Status.running), False)
    other = SimpleNamespace(name=1, processing={"rank-0": 1.0})
    cluster.worker_spec[1] = {}
    cluster.scheduler.workers = {"tcp://h:2": other}
    replacer = WorkerReplacer(cluster)

    async def checks():
        await replacer.check(0.0)
        await replacer.check(2 * GIVE_UP_S)
        assert not cluster.closed
        other.processing.clear()
        await replacer.check(2 * GIVE_UP_S + 1)
        assert cluster.closed

    asyncio.run(checks())


@pytest.mark.parametrize(
    "opened", [lambda: local_threads(1), nannies_kept.held], ids=["threads", "kept"]
)
def test_settings_of_dask_are_as_before_in_whatever_order_clusters_end(opened):
    def state():
        handlers = logging.getLogger("distributed").handlers
        return copy.deepcopy(dask.config.config), [handler.level for handler in handlers]

    before = state()
    first, second = opened(), opened()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert state() == before


def test_a_program_that_logs_gets_no_records_of_dask(caplog):
    root, dask_log = logging.getLogger(), logging.getLogger("distributed.scheduler")
    logger = logging.getLogger("distributed")
    propagates, logger.propagate = logger.propagate, True  # logging was set up before Dask
    try:
        with caplog.at_level(logging.INFO), local_threads(1):
            dask_log.warning("from Dask")
            root.info("from the program")
        assert logger.propagate
    finally:
        logger.propagate = propagates
    assert [record.message for record in caplog.records] == ["from the program"]


def test_an_error_of_dask_at_the_start_is_one_line_with_a_hint():
    with pytest.raises(ClusterError, match="soon") as caught, local._start_with({}):
        raise ValueError("invalid time unit: soon\nmore")
    assert caught.value.hint is not None


def test_a_dashboards_link_that_cannot_be_filled_in_ends_nothing():
    class Client:
        @property
        def dashboard_link(self):
            raise KeyError("NOT_SET")  # as text with a variable that is not set

    assert "NOT_SET" in dashboard_link(Client())


def test_a_cluster_inside_a_task_of_a_worker_process_is_refused(monkeypatch, wording):
    def start():
        with local_cluster(1, 1, "cpu", ":0"):
            pass

    worker = SimpleNamespace(nanny="tcp://h:1", address="tcp://h:2")
    monkeypatch.setattr("distributed.get_worker", lambda: worker)
    monkeypatch.setattr(local, "check_this_machine", lambda *_: pytest.fail("it went on"))
    wording.refused(ClusterError, start)


@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_script_without_a_main_guard_is_refused_before_it_starts_itself(
    tmp_path, monkeypatch, is_guarded
):
    script = tmp_path / "script.py"
    call = "distrain.fit(JOB)\n"
    script.write_text(f"if __name__ == '__main__':\n    {call}" if is_guarded else call)
    main = SimpleNamespace(__file__=str(script), __spec__=None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(local, "check_this_machine", lambda *_: pytest.fail("it went on"))
    expected = pytest.fail.Exception if is_guarded else ClusterError
    with pytest.raises(expected), local_cluster(1, 1, "cpu", ":0"):
        pass
