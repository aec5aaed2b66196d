"""JobCommands over HTTP: each answer of the routes, as services meet it."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
from monitored import beside
from order_site import SPEC, OrderSite, new_order_site, no_token as no_token

from distrain.jobs.spec import parse_spec
from distrain.launch.job_handle import _NO_PROGRESS
from distrain.scheduler.lifecycle.messages import Cancel
from distrain.service.decisions.world import Refused


async def refused(call: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await call
    return caught.value


@beside(new_order_site)
async def test_a_job_is_put_once_followed_and_cancelled(site: OrderSite) -> None:
    with site.client() as client:
        seen, new = await site.put(client, "a", priority=3)
        assert new
        assert (seen.id, seen.state, seen.priority) == ("a", "pending", 3)
        assert seen.run_dir == "/runs/a"
        assert site.monitor.job("a")["page"] == "https://jobs.example/jobs/a"
        assert (await site.put(client, "a", priority=3))[1] is False
        changes = await site.ask(client.changes)
        (job,) = changes.jobs
        assert (job.id, job.service, job.first_attempt) == ("a", "here", 1)
        assert job.name == "clicks"
        assert changes.epoch == site.epoch
        again = await site.ask(client.changes, changes.revision, changes.epoch)
        assert (again.jobs, again.revision, again.more) == ((), changes.revision, False)
        await site.ask(client.order, "a", "cancel", {"why": "enough", "first_attempt": 1})
        (job,) = (await site.ask(client.changes, changes.revision, changes.epoch)).jobs
        assert (job.state, job.is_final) == ("cancelled", True)
        assert job.message == "the job was cancelled: enough"
        assert (await site.ask(client._ask, "GET", "jobs/a"))[1]["state"] == "cancelled"


@beside(new_order_site)
async def test_every_refusal_of_an_order(site: OrderSite) -> None:
    with site.client() as client, site.client("there") as other:
        site.submit("trains", num_ranks=1)
        site.coordinator.histories["trains"].service = "here"
        await site.put(client, "a", first_attempt=2)

        error = await refused(site.put(client, "c", epoch="another"))
        assert (error.status, error.code) == (409, "epoch_changed")
        for early in (
            site.ask(client.order, "a", "cancel", {"first_attempt": 1}),
            site.ask(client.order, "a", "priority", {"priority": 1, "first_attempt": 1}),
        ):
            assert (await refused(early)).code == "later_submission"
        bad = {**SPEC, "train": {"global_batch_size": 0}}
        error = await refused(site.put(client, "c", spec=bad))
        assert (error.status, error.code) == (422, "bad_spec")
        assert "train.global_batch_size" in str(error)
        for first in (0, 2**31):
            error = await refused(site.put(client, "c", first_attempt=first))
            assert (error.status, error.code) == (400, "bad_request")
            assert "first_attempt" in str(error)
        assert "c" not in site.coordinator.lifecycle.jobs

        order = {"priority": 1, "first_attempt": 1}
        error = await refused(site.ask(client.order, "c", "priority", order))
        assert (error.status, error.code) == (404, "not_found")
        for foreign in (
            site.put(other, "a"),
            site.ask(other.order, "a", "cancel", {"first_attempt": 2}),
            site.ask(other.order, "a", "priority", order | {"first_attempt": 2}),
        ):
            error = await refused(foreign)
            assert (error.status, error.code) == (409, "other_service")
        error = await refused(site.ask(client.order, "trains", "priority", order))
        assert (error.status, error.code) == (409, "not_pending")
        error = await refused(site.ask(client.preflight_result, "0" * 32, "alice"))
        assert (error.status, error.code) == (404, "not_found")


@beside(new_order_site)
async def test_an_end_of_somebody_elses_job_answers_no_put(site: OrderSite) -> None:
    with site.client() as client, site.client("there") as other:
        await site.put(client, "a")
        for job_id in ("a", "never"):
            cancel = {"why": "enough", "first_attempt": 1}
            with contextlib.suppress(Refused):
                await site.ask(client.order, job_id, "cancel", cancel)
        for is_forgotten in (False, True):
            if is_forgotten:
                site.coordinator._bury("a")
            for job_id in ("a", "never"):
                assert (await refused(site.put(client, job_id))).code == "ended"
                assert (await refused(site.put(other, job_id))).code == "other_service"
                for first in (1, 9):
                    order = site.ask(other.order, job_id, "cancel", {"first_attempt": first})
                    assert (await refused(order)).code == "other_service"
                assert (await refused(site.put(client, job_id))).code == "ended"


@beside(new_order_site)
async def test_a_put_that_comes_after_its_cancellation_is_refused(site: OrderSite) -> None:
    with site.client() as client:
        for job_id in ("never", "ended", "runs"):
            if job_id != "never":
                await site.put(client, job_id)
            if job_id == "ended":
                await site.ask(client.order, job_id, "cancel", {"first_attempt": 1})
            cancel = {"why": "enough", "first_attempt": 2}
            call = site.ask(client.order, job_id, "cancel", cancel)
            if job_id == "runs":
                await call
            else:
                assert (await refused(call)).code == "ended"
            for first in (1, 2):
                error = await refused(site.put(client, job_id, first_attempt=first))
                assert error.code == "ended"
            assert error.ended is not None
            assert (error.ended.state, error.ended.attempt) == ("cancelled", 2)
            assert (await site.put(client, job_id, first_attempt=3))[1]


@pytest.mark.slow
@beside(new_order_site)
async def test_tombstones_outlive_the_jobs_that_are_kept(site: OrderSite) -> None:
    coordinator = site.coordinator
    for number in range(560):
        coordinator.queue(f"job-{number}", parse_spec(SPEC), "/runs")
        coordinator.histories[f"job-{number}"].service = "here"
        coordinator.handle_stimulus(Cancel(f"job-{number}", "no room"))
        coordinator.recordings.heard(f"job-{number}", None, "")
    assert "job-0" not in coordinator.lifecycle.jobs
    with site.client() as client:
        for number in (0, 30, 559):  # two are forgotten
            error = await refused(site.put(client, f"job-{number}"))
            assert (error.status, error.code) == (410, "ended")
            assert error.ended is not None
            assert error.ended.message == "the job was cancelled: no room"
        assert (await refused(site.ask(client._ask, "GET", "jobs/job-0"))).code == "ended"
        assert (
            await refused(site.ask(client.order, "job-0", "cancel", {"first_attempt": 1}))
        ).code == "ended"
        assert (await site.put(client, "job-0", first_attempt=2))[1]
    # By Dask, too: what is forgotten is shown as it ended, and does not run again.
    coordinator.tombstones.add(_tombstone(coordinator, "done"))
    assert coordinator.queue("done", parse_spec(SPEC), "/runs") is False
    view = coordinator.view("done")
    assert view is not None
    assert (view["state"], view["attempt"]) == ("succeeded", 1)
    assert coordinator.queue("done", parse_spec(SPEC), "/runs", first_attempt=2) is True


def _tombstone(coordinator: Any, job_id: str) -> Any:
    one = coordinator.tombstones["job-30"]
    end = {"id": job_id, "state": "succeeded", "attempt": 1, "reason": None}
    return one.model_copy(update=end)


@beside(new_order_site)
async def test_who_orders_over_dasks_connection_names_no_service(site: OrderSite) -> None:
    request = site.scheduler.handlers["distrain_request"]

    def ask(method: str, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        answer = request(method, f"/v1/jobs/{path}", "", json.dumps(body).encode())
        return answer["status"], json.loads(answer["text"])

    job = {"spec": SPEC, "run_dir": "/runs/a"}
    for text in ("a\0b", "a\ud800b"):
        status, problem = ask("PUT", "a", **job | {"spec": {**SPEC, "name": text}})
        assert (status, problem["code"]) == (400, "bad_request")
    assert ask("PUT", "a", **job)[0] == 201
    status, seen = ask("PUT", "a", **job)
    assert (status, seen["service"], seen["state"]) == (200, None, "pending")
    nothing_of_it = request("GET", "/v1/jobs/a/view", f"since={_NO_PROGRESS}", b"")
    assert (nothing_of_it["status"], json.loads(nothing_of_it["text"])["progress"]) == (200, [])
    assert ask("PATCH", "a", priority=7)[1]["priority"] == 7
    status, seen = ask("POST", "a/cancel", why="enough")
    assert (status, seen["state"]) == (202, "cancelled")
    assert ask("POST", "a/cancel")[0] == 200, "it stays as it is"
    assert ask("POST", "never/cancel")[0] == 404
    assert ask("PUT", "a", **job)[0] == 410
    assert ask("PUT", "a", **job, first_attempt=2)[0] == 201
    with site.client() as client:
        await site.put(client, "theirs")
    assert ask("PUT", "theirs", **job)[1]["code"] == "other_service"
    assert ask("POST", "theirs/cancel")[0] == 202, "who has the connection may do anything"


@beside(new_order_site)
async def test_many_puts_of_one_job_at_once_queue_it_once(site: OrderSite) -> None:
    with site.client() as client:
        answers = await asyncio.gather(*(site.put(client, "a") for _ in range(20)))
        assert sorted(new for _, new in answers) == [False] * 19 + [True]


@beside(new_order_site)
async def test_workers_are_counted_and_listed(site: OrderSite) -> None:
    site.submit("trains", num_ranks=2)
    with site.client() as client:
        counts = (await site.ask(client.changes)).workers
        assert (counts.total, counts.usable, counts.free, counts.gpus) == (2, 2, 0, 0)
        workers = await site.ask(client.workers)
        assert [[w[name] for name in ("host", "job", "rank", "gpu")] for w in workers] == [
            ["host-0", "trains", 0, None],
            ["host-1", "trains", 1, None],
        ]
