"""Has workers check the data of job specs, as `distrain plan` does.

The checks read files and import packages, so they do not run in the scheduler's process.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from distributed import Client

from distrain.jobs.api_answers import Preflight
from distrain.scheduler.http.bodies import Refusal
from distrain.workers.spec_check import check_spec

MOST_AT_ONCE = 2
MOST_WAITING = 20
MOST_OF_OWNER = 3  # waiting or running checks of one owner, so that slow ones do not block others
KEPT_S = 900.0
LIMIT_S = 120.0  # how long one check may take, from its start on a worker
WORKER_WITHIN_S = 60.0
"""How long a check may wait for a worker that is not training, in addition to `LIMIT_S`."""


@dataclass
class _Preflight:
    """One check of a job spec's data by a worker."""

    owner: str  # who requested the check; "" if unknown
    found: Preflight
    ended_s: float | None = None


class Preflights:
    """The checks of a scheduler that have not ended, or ended less than `KEPT_S` ago.

    At most `MOST_AT_ONCE` checks run at the same time, and one of each owner; the others wait.

    `client` returns a Dask client of the scheduler.
    """

    def __init__(
        self, client: Callable[[], Awaitable[Client]], clock: Callable[[], float] = time.monotonic
    ):
        self._client = client
        self._clock = clock
        self._known: dict[str, _Preflight] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    def start(self, spec: dict[str, Any], owner: str = "") -> str:
        """Begin a check of a spec, given as JSON values, and return the check's id.

        Raises `Refusal` if `MOST_WAITING` checks have not ended, or `MOST_OF_OWNER` of this owner.
        Without an `owner`, the second limit does not apply.
        """
        self._forget_old_ones()
        waiting = [one.owner for one in self._known.values() if one.ended_s is None]
        hint = "Ask again in a minute."
        if len(waiting) >= MOST_WAITING:
            raise Refusal(429, "busy", f"{MOST_WAITING} checks wait already", hint)
        if owner and waiting.count(owner) >= MOST_OF_OWNER:
            raise Refusal(429, "busy", f"{MOST_OF_OWNER} checks of {owner} wait already", hint)
        preflight_id = uuid4().hex
        self._known[preflight_id] = one = _Preflight(owner, Preflight(state="waiting"))
        task = asyncio.ensure_future(self._run(preflight_id, one, json.dumps(spec)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return preflight_id

    def document(self, preflight_id: str, owner: str = "") -> dict[str, Any]:
        """Return the fields of a check's `Preflight`, and its `id`, as JSON values.

        Raises `Refusal` if the check is unknown or no longer kept, or belongs to another owner than
        `owner` ("": any owner).
        """
        self._forget_old_ones()
        one = self._known.get(preflight_id)
        if one is None or owner not in ("", one.owner):
            hint = f"Checks are kept for {KEPT_S / 60:.0f} minutes; make another one."
            raise Refusal(404, "not_found", f"no check {preflight_id!r}", hint)
        return {"id": preflight_id, **one.found.model_dump()}

    async def _run(self, preflight_id: str, one: _Preflight, spec: str) -> None:
        turn = self._turns.setdefault(one.owner or preflight_id, asyncio.Lock())
        async with turn, self._room:
            one.found = Preflight(state="running")
            try:
                one.found = Preflight(**await self._ask_a_worker(preflight_id, spec))
            except TimeoutError:
                within = f"within {WORKER_WITHIN_S + LIMIT_S:.0f} s"
                one.found = Preflight(error=f"no worker was free for the check {within}")
            except Exception as error:  # any failure of a worker: the next check must still run
                one.found = Preflight(error=f"the check was lost: {error!r}")
            one.ended_s = self._clock()

    async def _ask_a_worker(self, preflight_id: str, spec: str) -> dict[str, Any]:
        client = await self._client()
        future = client.submit(
            check_spec, spec, LIMIT_S, key=f"distrain-check-{preflight_id}", pure=False, retries=0
        )
        try:
            answer = asyncio.wait_for(future.result(), WORKER_WITHIN_S + LIMIT_S)
            found: dict[str, Any] = await answer
            return found
        finally:
            future.release()

    def _forget_old_ones(self) -> None:
        now_s = self._clock()
        self._known = {
            name: one
            for name, one in self._known.items()
            if one.ended_s is None or now_s - one.ended_s < KEPT_S
        }
