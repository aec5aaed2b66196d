"""Lists jobs in pages, newest first, by their sequence numbers (`seq`).

Each page starts below the last number of the previous page. Its cost depends on its size, not on
the number of jobs: a filter is split into branches, each of which scans one index in the order of
`seq` and stops after a page. There is one branch for each pair of a project (or owner in it) that
the caller may see and a requested state; all states of jobs that have not ended, which have
separate indexes, are one. The branches' rows are then merged.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    false,
    func,
    or_,
    select,
    true,
    union_all,
)

from distrain.jobs.states import FINAL_STATES
from distrain.jobs.status import figures_in
from distrain.service.store import rows, tables
from distrain.service.store.engine import Database
from distrain.service.values import CANCELLING, NO_CONTACT_S, UNKNOWN, Intent, Job, Phase

_MANY_BRANCHES = 24
_jobs = tables.jobs


@dataclass(frozen=True)
class JobFilter:
    """A filter of jobs; fields that are `None` or empty do not restrict it."""

    project: str | None = None
    owner: str | None = None
    # the API's states: `queued`, `handing_over`, `cancelling`, `unknown`, or the scheduler's
    states: tuple[str, ...] = ()
    cluster: str | None = None
    tags: tuple[tuple[str, str], ...] = ()  # a job must have all of these tags
    text: str = ""  # part of the name or the id, case-insensitive
    # the jobs visible to the caller: projects, each with the only visible owner or `None` for all
    # owners; `None` instead of the tuple: all jobs
    visible: tuple[tuple[str, str | None], ...] | None = None


@dataclass(frozen=True)
class Worked:
    """An attempt of a job, in reports of usage.

    It has the attempt's ranks, and since and until when they held workers.
    """

    project: str
    owner: str
    cluster: str
    tags: Mapping[str, str]
    job_id: str
    num_ranks: int
    gpus: int  # the number of its ranks on a GPU
    since_s: float
    until_s: float


class Listing:
    db: Database

    def worked(self, wanted: JobFilter, since_s: float, until_s: float) -> Iterator[Worked]:
        """Yield the attempts, between two Unix times, of the jobs that match `wanted`.

        The times of an attempt are clipped to the interval, and to the present. The filter's
        `states` are ignored.
        """
        attempts, jobs = tables.attempts.c, _jobs.c
        with self.db.read() as connection:
            now_s = min(self.db.now_s(connection), until_s)
            ended_s = func.coalesce(attempts.ended_at_s, jobs.finished_at_s, now_s)
            statement = (
                select(
                    *(jobs.project, jobs.owner, jobs.cluster, jobs.tags, jobs.id),
                    *(jobs.num_ranks, jobs.progress, attempts.started_at_s, ended_s),
                    *(attempts.ranks, attempts.gpus),
                )
                .join_from(_jobs, tables.attempts, attempts.job_id == jobs.id)
                .where(or_(jobs.finished_at_s.is_(None), jobs.finished_at_s > since_s))
                .where(attempts.started_at_s < now_s, ended_s > since_s)
                .where(or_(*_seen(wanted)), *_common(wanted))
            )
            for row in connection.execute(statement):
                project, owner, cluster, tags, job_id, wanted_ranks, progress, *of = row
                began_s, end_s, ranks, gpus = of
                # Attempts that did not end, or ended unseen, use the numbers of the last attempt.
                ranks = ranks or progress.get("ranks") or wanted_ranks
                gpus = figures_in(progress).get("gpus") or 0 if gpus is None else gpus
                gpus = min(ranks, gpus)
                held_s = max(began_s, since_s), min(end_s, now_s)
                yield Worked(project, owner, cluster, tags, job_id, ranks, gpus, *held_s)

    def jobs(self, wanted: JobFilter, limit: int, before_seq: int | None = None) -> list[Job]:
        """Return at most `limit` jobs that match a filter, newest first.

        For the next page, `before_seq` is the `seq` of the previous page's last job.
        """
        with self.db.read() as connection:
            now_s = self.db.now_s(connection)
            common = _common(wanted)
            if before_seq is not None:
                common.append(_jobs.c.seq < before_seq)
            statement = _page(_branches(wanted, now_s), common, limit)
            return [rows.job_of(row) for row in connection.execute(statement)]

    def live_counts(self, wanted: JobFilter, states: Sequence[str]) -> dict[str, int]:
        """Return for each of `states` the number of jobs in it that match a filter and are alive.

        Jobs that have ended are not counted: there may be millions, and no index counts them. The
        filter's `states` are ignored.
        """
        with self.db.read() as connection:
            now_s = self.db.now_s(connection)
            counts = [func.count().filter(state_is(state, now_s)) for state in states]
            alive = [_jobs.c.finished_at_s.is_(None), or_(*_seen(wanted)), *_common(wanted)]
            row = connection.execute(select(*counts).where(*alive)).one()
        return dict(zip(states, row, strict=True))

    def alive_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of jobs that have not ended, by phase and state.

        `state` is the job's state as its scheduler last reported it; see `Phase`.
        """
        counted = select(_jobs.c.phase, _jobs.c.state, func.count()).where(
            _jobs.c.finished_at_s.is_(None)
        )
        found = self.db.all(counted.group_by(_jobs.c.phase, _jobs.c.state))
        return {(phase, state): count for phase, state, count in found}

    def stranded_counts(self, clusters: Collection[str]) -> dict[str, int]:
        """Return the number of jobs that have not ended on other clusters, by cluster."""
        elsewhere = _jobs.c.finished_at_s.is_(None), _jobs.c.cluster.not_in(clusters)
        counted = select(_jobs.c.cluster, func.count()).where(*elsewhere).group_by(_jobs.c.cluster)
        return {name: count for name, count in self.db.all(counted)}  # noqa: C416 - as below

    def ended_counts(self, last_s: float) -> dict[str, int]:
        with self.db.read() as connection:
            since_s = self.db.now_s(connection) - last_s
            counted = select(_jobs.c.state, func.count()).where(_jobs.c.finished_at_s > since_s)
            found = connection.execute(counted.group_by(_jobs.c.state))
            return {state: count for state, count in found}  # noqa: C416 - to mypy, rows are not pairs

    def longest_queued_s(self) -> float:
        """Return the longest time in seconds since a queued job was submitted or resumed.

        The result is 0 without queued jobs.
        """
        with self.db.read() as connection:
            now_s = self.db.now_s(connection)
            queued_s = func.coalesce(_jobs.c.queued_at_s, _jobs.c.created_at_s)
            oldest = select(func.min(queued_s)).where(
                _jobs.c.finished_at_s.is_(None), _jobs.c.phase == Phase.QUEUED.value
            )
            oldest_s = connection.execute(oldest).scalar_one()
        return max(0.0, now_s - oldest_s) if oldest_s is not None else 0.0


def state_is(state: str, now_s: float) -> ColumnElement[bool]:
    """Return the SQL condition for jobs whose state in the API is `state` at the time `now_s`.

    It agrees with `api_values.shown`: final states come first, then cancelling, queued and handing
    over. `unknown` is a handed-over job whose cluster has not answered for `NO_CONTACT_S`; any
    other state is the one that the scheduler reported.
    """
    alive = _jobs.c.finished_at_s.is_(None)
    cancelling = _jobs.c.intent == Intent.CANCEL.value
    heard = tables.clusters
    silent = and_(
        _jobs.c.phase == Phase.HANDED_OVER.value,
        func.coalesce(_jobs.c.observed_at_s, 0.0) <= now_s - NO_CONTACT_S,
        _jobs.c.cluster.not_in(
            select(heard.c.name).where(heard.c.observed_at_s > now_s - NO_CONTACT_S)
        ),
    )
    wanted = and_(alive, ~cancelling)
    if state in FINAL_STATES:
        return and_(_jobs.c.state == state, ~alive)
    if state == CANCELLING:
        return and_(alive, cancelling)
    if state in (Phase.QUEUED.value, Phase.HANDING_OVER.value):
        return and_(wanted, _jobs.c.phase == state)
    if state == UNKNOWN:
        return and_(wanted, silent)
    return and_(wanted, _jobs.c.phase == Phase.HANDED_OVER.value, ~silent, _jobs.c.state == state)


def _common(wanted: JobFilter) -> list[ColumnElement[bool]]:
    conditions = []
    if wanted.project is not None:
        conditions.append(_jobs.c.project == wanted.project)
    if wanted.owner is not None:
        conditions.append(_jobs.c.owner == wanted.owner)
    if wanted.cluster is not None:
        conditions.append(_jobs.c.cluster == wanted.cluster)
    if wanted.text:
        conditions.append(
            or_(
                _jobs.c.name.icontains(wanted.text, autoescape=True),
                _jobs.c.id.icontains(wanted.text, autoescape=True),
            )
        )
    tagged = tables.job_tags
    for key, value in wanted.tags:
        seqs = select(tagged.c.seq).where(tagged.c.key == key, tagged.c.value == value)
        conditions.append(_jobs.c.seq.in_(seqs))
    return conditions


def _branches(wanted: JobFilter, now_s: float) -> list[ColumnElement[bool]]:
    seen = _seen(wanted)
    states = _states(wanted.states, now_s)
    if len(seen) * len(states) > _MANY_BRANCHES:
        return [and_(or_(*seen), or_(*states))]
    return [and_(*both) for both in product(seen, states)]


def _seen(wanted: JobFilter) -> list[ColumnElement[bool]]:
    if wanted.visible is None:
        return [true()]
    whole = {project for project, owner in wanted.visible if owner is None}
    pairs = {
        (project, owner)
        for project, owner in wanted.visible
        if wanted.project in (None, project)
        and (owner is None or (project not in whole and wanted.owner in (None, owner)))
    }
    conditions = [
        _jobs.c.project == project
        if owner is None
        else and_(_jobs.c.project == project, _jobs.c.owner == owner)
        for project, owner in sorted(pairs, key=str)
    ]
    return conditions or [false()]


def _states(states: Iterable[str], now_s: float) -> list[ColumnElement[bool]]:
    asked = set(states)
    if not asked:
        return [true()]
    conditions = [state_is(state, now_s) for state in sorted(asked & FINAL_STATES)]
    if alive := sorted(asked - FINAL_STATES):
        shown = or_(*(state_is(state, now_s) for state in alive))
        conditions.append(and_(_jobs.c.finished_at_s.is_(None), shown))
    return conditions


def _page(
    branches: list[ColumnElement[bool]], common: list[ColumnElement[bool]], limit: int
) -> Select[tuple[object, ...]]:
    newest = [
        select(_jobs).where(branch, *common).order_by(_jobs.c.seq.desc()).limit(limit)
        for branch in branches
    ]
    if len(newest) == 1:
        return newest[0]
    parts = [select(part.subquery()) for part in newest]
    merged = union_all(*parts).subquery()
    return select(merged).order_by(merged.c.seq.desc()).limit(limit)
