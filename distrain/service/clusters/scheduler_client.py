"""The HTTP client of a scheduler: submits, cancels and follows jobs. Threads may share it.

A scheduler may have another version, so unknown fields of answers are ignored. Users' code may also
run in the scheduler, so answers are not trusted: long texts are cut, and invalid metrics count as
unknown. An answer with values of wrong types, or with other numbers that a database cannot store,
raises Unreachable.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import httpx2
from pydantic_core import from_json

from distrain.client.connection import Call, Connection
from distrain.client.credentials import Address
from distrain.client.retries import Retries, certificate_hint
from distrain.client.service_target import ServiceTarget
from distrain.jobs.api_answers import Job, Preflight
from distrain.jobs.job_view import known_fields
from distrain.jobs.status import LARGEST, is_storable, job_of_scheduler
from distrain.service.decisions.world import Refused, SchedulerAnswer, Unreachable, Workers
from distrain.service.settings import TlsFiles

_MOST_OF_AN_EPOCH = 300


def answer_from_json(document: Mapping[str, Any]) -> SchedulerAnswer:
    """Return a scheduler's answer to `changes`, given its JSON values.

    Raises KeyError, TypeError or ValueError if a value is missing or has a wrong type or size.
    """
    epoch = document["epoch"]
    if not isinstance(epoch, str) or len(epoch) > _MOST_OF_AN_EPOCH or not is_storable(epoch):
        raise TypeError("epoch is not a name")
    workers = Workers(**known_fields(Workers, document.get("workers", {})))
    for value in (document["revision"], *vars(workers).values()):
        if type(value) is not int or abs(value) > LARGEST:
            raise TypeError(f"{value!r} is not an integer")
    return SchedulerAnswer(
        epoch,
        document["revision"],
        bool(document.get("more", False)),
        workers,
        tuple(job_of_scheduler(job) for job in document["jobs"]),
    )


Answer = TypeVar("Answer")

CONNECT_S = 2.0
READ_S = 5.0
_OF_PROXIES = (502, 503, 504)


class SchedulerClient(AbstractContextManager["SchedulerClient"]):
    """A connection to a scheduler's HTTP server; each call may raise Unreachable or Refused.

    `service` is the id of the job service, and `public_url` its URL for users, to which the
    scheduler's page links.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        tls: TlsFiles | None = None,
        *,
        service: str,
        public_url: str | None = None,
        transport: httpx2.BaseTransport | None = None,
    ):
        self.url = url.rstrip("/")
        self.service = service
        self._public_url = public_url
        address = Address(self.url, f"{self.url}/distrain")
        context = (tls or TlsFiles()).context()
        # Ignores proxies of the environment, which could read the token.
        target = ServiceTarget(address, token, None, context, trust_env=False)
        self._connection = Connection(target, Retries(most_tries=1), None, transport)

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def put(
        self,
        job_id: str,
        spec: Mapping[str, Any],
        run_dir: str,
        *,
        first_attempt: int,
        epoch: str,
        priority: int | None = None,
        age_s: float = 0.0,
        has_run: bool = False,
    ) -> tuple[Job, bool]:
        """Queue a job at the scheduler; return it, and whether the scheduler did not have it yet.

        A repeated call with the same `first_attempt`, the number of the first attempt of this
        submission, has no further effect. The scheduler rejects the job if the scheduler's epoch is
        not `epoch`. `priority` replaces that of the spec. For its deadlines, `age_s` is the time
        since its submission in seconds, and `has_run` whether it has had workers since.
        """
        status, document = self._order(
            "PUT",
            f"jobs/{job_id}",
            spec=spec,
            run_dir=run_dir,
            first_attempt=first_attempt,
            epoch=epoch,
            priority=priority,
            age_s=age_s,
            has_run=has_run,
            page=self._public_url and f"{self._public_url}/jobs/{job_id}",
        )
        return _read(job_of_scheduler, document), status == 201

    def order(self, job_id: str, name: str, words: Mapping[str, Any]) -> None:
        """Send an order to `cancel` a job or to change its `priority` (the `name` of the order).

        `words` are the fields of the request's body.
        """
        path = f"jobs/{job_id}"
        place = ("PATCH", path) if name == "priority" else ("POST", f"{path}/{name}")
        self._order(*place, **words)

    def changes(
        self, since: int = 0, epoch: str | None = None, *, collect_s: float = 0.0
    ) -> SchedulerAnswer:
        """Return the jobs that changed after a revision of the scheduler's jobs.

        `since` is the revision of the last answer, and `epoch` the id of the scheduler's start in
        it. If the scheduler was restarted since, it returns all jobs. If they are too many for one
        answer, its `more` is True; pass its `revision` as `since` to get the others. The scheduler
        may delay changes of metrics alone for up to `collect_s` seconds, to send them together.
        """
        query = {"since": str(since)}
        if collect_s:
            query["collect_ms"] = str(round(1e3 * collect_s))
        if epoch is not None:
            query["epoch"] = epoch
        return _read(answer_from_json, self._ask("GET", "changes", query)[1])

    def workers(self) -> list[dict[str, Any]]:
        return list(self._ask("GET", "workers")[1].get("workers") or ())

    def preflight(self, spec: Mapping[str, Any], owner: str) -> str:
        """Start a check of a spec and its data on a worker; return the check's id.

        `owner` is the user whose spec it is.
        """
        order, query = {"spec": spec, "owner": owner}, {"data": "true"}
        return str(self._ask("POST", "jobs:validate", query, order)[1].get("id"))

    def preflight_result(self, preflight_id: str, owner: str) -> Preflight:
        path = f"preflights/{preflight_id}"
        return Preflight.read(self._ask("GET", path, {"owner": owner})[1])

    def _order(self, method: str, path: str, **words: Any) -> tuple[int, dict[str, Any]]:
        return self._ask(method, path, body={"service": self.service, **words})

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None
    ) -> tuple[int, dict[str, Any]]:
        """Send a request once; return the status and the JSON object of its answer.

        The next pass of the reconciler repeats what is still to do, from the state of that time.
        """
        call = Call(
            method, f"/v1/{path}", query or {}, body=body, read_s=READ_S, connect_s=CONNECT_S
        )
        try:
            answer = self._connection.send(call)
        except httpx2.RequestError as error:
            raise self._unreachable(str(error) or repr(error), error) from error
        return answer.status_code, self._document(answer)

    def _document(self, answer: httpx2.Response) -> dict[str, Any]:
        status = answer.status_code
        try:
            document = from_json(answer.content, allow_inf_nan=False)
        except ValueError:
            document = None
        if isinstance(document, dict) and 200 <= status < 300:
            return document
        refused = document if isinstance(document, dict) else {}
        if (status >= 500 and "code" not in refused) or status in _OF_PROXIES or status < 400:
            raise self._unreachable(f"it answered {status}, which is not an answer of distrain")
        code = str(refused.get("code", "no_gateway" if status == 404 else f"http_{status}"))
        job = refused.pop("job", None)
        ended = _read(job_of_scheduler, job) if code == "ended" and job else None
        raise Refused(code, status, refused, ended)

    def _unreachable(self, why: str, error: Exception | None = None) -> Unreachable:
        hint = (
            "Is it running, with `--preload distrain.preload`, and is this the address of its "
            "dashboard? With TLS it begins with https://."
        )
        hint = certificate_hint(error, "the cluster's tls.ca_file") or hint
        return Unreachable(
            f"the scheduler gave no answer: {why}", where={"scheduler": self.url}, hint=hint
        )


def _read(parse: Callable[[Any], Answer], document: Any) -> Answer:
    try:
        return parse(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreachable(
            f"the scheduler's answer cannot be read: {error!r}",
            hint="Run the same version of distrain on both sides.",
        ) from None
