"""The client's calls for jobs: submit, query, wait, change, cancel."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from distrain.backoff import doubled_s
from distrain.client.connection import Call, Connection
from distrain.client.errors import NotFound, ServiceError, WaitTimedOut
from distrain.client.retries import json_of
from distrain.errors import InputError
from distrain.jobs.api_answers import Job, JobPage, Spec, Validation
from distrain.jobs.run_paths import JOB_ID, new_job_id
from distrain.jobs.status import find_id

_FIRST_POLL_S, _LAST_POLL_S = 0.5, 2.0  # the first and the longest pause of `wait`
_CHECK_POLL_S = 1.0  # the longest pause between two requests for the result of a data check
_AWAY_S = 5.0  # how long `wait` retries an unreachable service after its timeout
_MOST_LOOKED_AT = 2000  # the newest jobs whose ids `find` compares


def job_path(job_id: str, *more: str) -> str:
    """Return the URL path of a job or, with `more`, of a resource below it, such as its events.

    Raises `InputError` for a malformed id.
    """
    if not re.fullmatch(JOB_ID, job_id):
        raise InputError(f"{job_id!r} is not the id of a job", hint="`distrain jobs` lists them.")
    return "/".join(["/v1/jobs", job_id, *(quote(one, safe="") for one in more)])


def submission(
    spec: Mapping[str, Any],
    project: str | None = None,
    cluster: str | None = None,
    priority: int | None = None,
    tags: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the body of a request that submits or validates a job.

    Arguments that are `None` are left out; the service then uses its defaults.

    >>> submission({"name": "a"}, priority=3)
    {'spec': {'name': 'a'}, 'priority': 3}
    """
    more = {"project": project, "cluster": cluster, "priority": priority, "tags": tags or None}
    return {"spec": dict(spec)} | {name: v for name, v in more.items() if v is not None}


Filters = dict[str, str | list[str]]


def read_job(connection: Connection, job_id: str) -> Job:
    return Job.read(connection.document(Call("GET", job_path(job_id))))


class JobCalls:
    """The methods of `Client` that submit, query, change and delete jobs.

    Besides the errors that a method lists, all raise `InputError` for a malformed job id, and
    `ServiceError` (of which `ServiceUnavailable` means no response) for any other failed request.
    """

    _connection: Connection

    def submit(
        self,
        spec: Mapping[str, Any],
        *,
        project: str | None = None,
        cluster: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
        job_id: str | None = None,
    ) -> Job:
        """Submit a job.

        Args:
            spec: The job spec as JSON values; paths in it are absolute.
            project: The project's name. Default: `default`.
            cluster: The cluster's name; required if the project may use several clusters.
            priority: Default: the spec's `queue.priority`.
            tags: Tags to add to those of the spec; equal names override the spec's tags.
            job_id: The id of the new job. Default: a generated id. If an equal call with this id
                was made before, its job is returned; so a call with a chosen id can be repeated
                after an interruption.

        Raises:
            RequestRefused: The spec is wrong (`pointers` say where), a quota is full, or another
                job has the id.
            ServiceUnavailable: There was no response. The job may have been made. If so, the same
                call with the same id returns it.
        """
        body = submission(spec, project, cluster, priority, tags)
        job_id = job_id or new_job_id(str(spec.get("name", "distrain")))
        return self._made(Call("PUT", job_path(job_id), body=body))

    def validate(
        self,
        spec: Mapping[str, Any],
        *,
        project: str | None = None,
        cluster: str | None = None,
        data: bool = False,
    ) -> Validation:
        """Let the service validate a spec, without submitting it; return the result.

        Mistakes are in the result's `errors`.

        Args:
            spec: The job spec as JSON values.
            project: The project's name. Default: `default`.
            cluster: The cluster's name; required if the project may use several clusters.
            data: Also have a worker of the cluster check the data, and wait for its result.

        Raises:
            ServiceUnavailable: There was no response; or, with `data`, the cluster cannot check
                the data now.
        """
        params = {"data": "true"} if data else {}
        body = submission(spec, project, cluster)
        call = Call("POST", "/v1/jobs:validate", params=params, body=body)
        answer = self._connection.request(call)
        refused = json_of(answer) if answer.status_code == 422 else None
        if isinstance(refused, dict):
            return Validation.read(refused)
        document = self._connection.json_object(answer, call)
        if answer.status_code != 202:
            return Validation.read(document)
        return _checked(self._connection, str(document.get("url") or ""))

    def job(self, job_id: str) -> Job:
        """Return the current state of a job.

        Raises:
            NotFound: There is no such job, or this user may not see it.
        """
        return read_job(self._connection, job_id)

    def spec(self, job_id: str) -> Mapping[str, Any]:
        """Return the spec of a job's current submission, with all defaults.

        Raises:
            NotFound: There is no such job, or this user may not see it.
        """
        return Spec.read(self._connection.document(Call("GET", job_path(job_id, "spec")))).spec

    def find(self, word: str) -> Job:
        """Return the job whose id is `word`, or the only one whose id begins or ends with it.

        `word` is compared with the ids of the newest 2,000 jobs whose id or name contains it.

        Raises:
            NotFound: There is no such job.
            InputError: The ids of several jobs begin or end with `word`.
        """
        call = Call("GET", job_path(word))
        answer = self._connection.request(call)
        if answer.status_code != 404:
            return Job.read(self._connection.json_object(answer, call))
        ids: list[str] = []
        params: Filters = {"text": word, "limit": "200"}
        for _ in range(_MOST_LOOKED_AT // 200):
            page = _page(self._connection, params)
            ids += [one.id for one in page.jobs]
            if not page.next_cursor:
                break
            params["cursor"] = page.next_cursor
        job_id = find_id(ids, word)
        if job_id is None:
            raise NotFound(
                f"there is no job '{word}' that you may see",
                where={"server": self._connection.address},
                hint="`distrain jobs` lists them.",
                code="not_found",
                status=404,
            )
        return self.job(job_id)  # lists contain only summaries

    def jobs(
        self,
        *,
        project: str | None = None,
        owner: str | None = None,
        states: Sequence[str] = (),
        cluster: str | None = None,
        tags: Mapping[str, str] | None = None,
        text: str | None = None,
        page_jobs: int = 100,
    ) -> Iterator[Job]:
        """Iterate over jobs, the newest first; pages are fetched as needed.

        Args:
            project: Only jobs of this project.
            owner: Only jobs of this user.
            states: Only jobs in one of these states.
            cluster: Only jobs of this cluster.
            tags: Only jobs with all of these tags.
            text: Only jobs whose name or id contains this text.
            page_jobs: Jobs per page, at most 200.
        """
        named = {"project": project, "owner": owner, "cluster": cluster, "text": text}
        params: Filters = {name: value for name, value in named.items() if value}
        params |= {"state": list(states)} if states else {}
        params |= {"tag": [f"{name}={value}" for name, value in tags.items()]} if tags else {}
        params["limit"] = str(page_jobs)
        return _pages(self._connection, params)

    def wait(
        self,
        job_id: str,
        timeout_s: float | None = None,
        on_change: Callable[[Job], object] | None = None,
    ) -> Job:
        """Wait until a job has ended, also across restarts of the service, and return the job.

        Args:
            job_id: The job.
            timeout_s: The longest wait in seconds. Default: no limit.
            on_change: Called with the job once at the start, and again after each change.

        Raises:
            WaitTimedOut: The job has not ended within `timeout_s`.
        """
        began_s, tries = time.monotonic(), 0
        seen: Job | None = None
        while True:
            left_s = math.inf if timeout_s is None else began_s + timeout_s - time.monotonic()
            # Retries of an unreachable service end soon after the timeout of this wait.
            found = read_job(self._connection.with_retry_limit(max(0.0, left_s) + _AWAY_S), job_id)
            if found != seen and on_change is not None:
                on_change(found)
            seen = found
            if found.is_final:
                return found
            if left_s <= 0:
                raise WaitTimedOut(
                    f"job {found.id} has not ended within {timeout_s:g} s",
                    where={"server": self._connection.address, "state": found.state},
                    hint="It continues. Wait for it again, with a longer timeout.",
                )
            self._connection.pause(min(left_s, doubled_s(_FIRST_POLL_S, tries, _LAST_POLL_S)))
            tries += 1

    def cancel(
        self, job_id: str, *, grace_s: float | None = None, force: bool = False, why: str = ""
    ) -> Job:
        """Request the cancellation of a job, and return the job; use `wait` to wait for its end.

        A job that has ended is not changed.

        Args:
            job_id: The job.
            grace_s: Seconds for its ranks to save a checkpoint. Default: 3, or the spec's
                `deadlines.stop_grace_s` if that is less.
            force: The same as `grace_s=0`.
            why: The reason, shown with the job.
        """
        body = {"grace_s": grace_s, "force": force or None, "why": why or None}
        given = {name: value for name, value in body.items() if value is not None}
        call = Call("POST", job_path(job_id, "cancel"), body=given)
        return Job.read(self._connection.document(call))

    def resume(
        self,
        job_id: str,
        overrides: Mapping[str, Any] | None = None,
        *,
        resumes: int | None = None,
    ) -> Job:
        """Queue an ended job again; it continues from its last checkpoint.

        Args:
            job_id: The job.
            overrides: New values of spec fields by dotted path: `{"train.epochs": 3}`.
            resumes: How many times the job was resumed before this call. Default: the service's
                present number. A repeated call with the same number resumes the job only once.

        Raises:
            NotFound: There is no such job, or this user may not see it.
            NotFinished: The job has not ended.
            RequestRefused: The job has succeeded and the overrides do not make its training longer,
                the spec is wrong, a quota is full, or the job was resumed since.
        """
        if resumes is None:
            resumes = self.job(job_id).resumes
        body = {"resumes": resumes, "set": dict(overrides or {})}
        return self._made(Call("POST", job_path(job_id, "resume"), body=body))

    def clone(
        self, job_id: str, overrides: Mapping[str, Any] | None = None, *, new_id: str | None = None
    ) -> Job:
        """Submit a new job with the spec, project, cluster, tags and priority of an existing job.

        Args:
            job_id: The existing job.
            overrides: New values of spec fields by dotted path: `{"train.epochs": 3}`.
            new_id: The new job's id, as `job_id` of `submit`. Default: an id generated from the
                existing job's name.

        Raises:
            NotFound: There is no such job, or this user may not see it.
            RequestRefused: As for `submit`.
        """
        if new_id is None:
            new_id = new_job_id(self.job(job_id).name)
        body = {"id": new_id, "set": dict(overrides or {})}
        return self._made(Call("POST", job_path(job_id, "clone"), body=body))

    def _made(self, call: Call) -> Job:
        answer = self._connection.request(call)
        job = Job.read(self._connection.json_object(answer, call))
        job._replayed = answer.status_code == 200
        return job

    def set_priority(self, job_id: str, priority: int) -> Job:
        """Change the priority of a job that has not started.

        Raises:
            NotFound: There is no such job, or this user may not see it.
            RequestRefused: The job has started or ended.
            NotAuthorised: This user may not set this priority.
        """
        return self._change(job_id, {"priority": priority})

    def set_tags(self, job_id: str, tags: Mapping[str, str | None]) -> Job:
        """Set the given tags of a job; a value of `None` removes the tag. Other tags are kept.

        Raises:
            NotFound: There is no such job, or this user may not see it.
            RequestRefused: A tag is not valid.
        """
        return self._change(job_id, {"tags": dict(tags)})

    def _change(self, job_id: str, changes: Mapping[str, Any]) -> Job:
        return Job.read(self._connection.document(Call("PATCH", job_path(job_id), body=changes)))

    def delete(self, job_id: str) -> None:
        """Delete a job that has ended.

        Raises:
            NotFound: There is no such job, or this user may not see it.
            NotFinished: The job has not ended.
        """
        self.job(job_id)
        call = Call("DELETE", job_path(job_id))
        answer = self._connection.request(call)
        if answer.status_code != 404:  # an earlier try or another user has deleted the job
            self._connection.check(answer, call)


def _checked(connection: Connection, url: str) -> Validation:
    """Poll a data check, which a worker runs, until it ends; return its result as a `Validation`.

    `url` is the URL path of the check. If the check failed or was lost, the result has `errors`.
    Raises `ServiceError` if `url` is not the path of a data check.
    """
    if not re.fullmatch(r"/v1/preflights/[A-Za-z0-9._~=-]{1,2000}", url):
        raise ServiceError(
            "the service returned no URL of the data check",
            where={"server": connection.address},
            hint="Validate without `data`.",
        )
    tries = 0
    while True:
        found = connection.document(Call("GET", url))
        if found.get("state") not in ("waiting", "running"):
            checked = Validation.read(found)
            if found.get("state") == "passed":
                return checked
            why = found.get("error") or f"the check of the data ended as {found.get('state')!r}"
            told = [dict(one) for one in found.get("errors") or ()] or [{"message": why}]
            errors = [
                {"pointer": "/spec", "detail": one.get("message", why), **one} for one in told
            ]
            return Validation.read({**found, "errors": errors})
        tries += 1
        connection.pause(doubled_s(0.05, tries, _CHECK_POLL_S))


def _page(connection: Connection, params: Filters) -> JobPage:
    document = connection.document(Call("GET", "/v1/jobs", params=params))
    jobs = [Job.read(one) for one in document.get("jobs") or ()]
    cursor = JobPage.read({**document, "jobs": []}).next_cursor
    more = cursor if cursor != params.get("cursor") else None
    return JobPage(jobs=jobs, next_cursor=more)


def _pages(connection: Connection, params: Filters) -> Iterator[Job]:
    while True:
        page = _page(connection, params)
        yield from page.jobs
        if not page.next_cursor:
            return
        params["cursor"] = page.next_cursor
