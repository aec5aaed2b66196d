"""Orders over HTTP: each answer of the routes, as a service meets it."""

import pytest
from gateway_site import GatewaySite, on_gateway_site

from distrain.service.clusters import Refused


def refused(call: object) -> Refused:
    with pytest.raises(Refused) as caught:
        call()  # type: ignore[operator]
    return caught.value


def test_a_job_is_put_once_followed_and_cancelled() -> None:
    async def story(site: GatewaySite) -> None:
        with site.client() as client:
            seen, new = await site.put(client, "a", priority=3)
            assert (seen.job_id, seen.state, seen.priority, seen.run_dir) == (
                "a", "pending", 3, "/runs/a",
            )  # fmt: skip
            assert new
            assert (await site.put(client, "a", priority=3))[1] is False
            changes = await site.ask(client.changes)
            (job,) = changes.jobs
            assert (job.job_id, job.service, job.first_attempt) == ("a", "here", 1)
            assert job.view is not None
            assert job.view.name == "clicks"
            assert changes.generations == {"here": 1}
            assert changes.epoch == site.epoch
            again = await site.ask(client.changes, changes.revision, changes.epoch)
            assert (again.jobs, again.revision, again.more) == ((), changes.revision, False)
            await site.ask(client.cancel, "a", "enough", generation=1)
            (job,) = (await site.ask(client.changes, changes.revision, changes.epoch)).jobs
            assert (job.state, job.is_final) == ("cancelled", True)
            assert job.view is not None
            assert job.view.message == "the job was cancelled: enough"

    on_gateway_site(story)
