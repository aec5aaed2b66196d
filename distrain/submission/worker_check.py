"""A job's data as a worker sees it, before the job is submitted."""

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from distrain.errors import ClusterError, Mistakes
from distrain.spec import JobSpec

if TYPE_CHECKING:
    from distributed import Client

CHECK_S = 120.0
WORKER_WITHIN_S = 60.0
"""How long the check may wait for a worker, and its answer may travel."""


def check_on_worker(client: "Client", spec: JobSpec) -> tuple[str, ...]:
    """Have a worker look at a job's data, places and model; returns its notes.

    Raises:
        InputError: It finds mistakes; the message has all of them.
        ClusterError: No worker could look.
    """
    from distributed import TimeoutError as DaskTimeout

    from distrain.worker import check_spec

    text = json.dumps(spec.model_dump(mode="json"))
    key = f"distrain-check-{uuid4().hex}"
    future = client.submit(check_spec, text, CHECK_S, key=key, pure=False, retries=0)
    try:
        verdict: dict[str, Any] = future.result(timeout=CHECK_S + WORKER_WITHIN_S)
    except (DaskTimeout, TimeoutError) as error:
        raise _could_not("no worker had room for it") from error
    except Exception as error:  # a worker that dies, or has another version
        raise _could_not(repr(error)) from error
    finally:
        future.release()  # which ends it, if it still runs
    if "could_not_check" in verdict:
        raise _could_not(str(verdict["could_not_check"]))
    mistakes = Mistakes()
    for one in verdict.get("errors") or ():
        mistakes.add_json(one, on="a worker")
    mistakes.raise_found()
    return tuple(map(str, verdict.get("notes") or ()))


def _could_not(why: str) -> ClusterError:
    return ClusterError(
        f"the job could not be checked on a worker: {why}",
        hint="Nothing was submitted. See `distrain jobs` for who has the workers, or submit "
        "without --check.",
    )
