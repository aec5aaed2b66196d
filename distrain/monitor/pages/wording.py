"""Jobs in words: the table, the selector, and the lines above the figures. Pure."""

from collections.abc import Sequence
from html import escape

from distrain.monitor.pages.columns import Columns, Document

NEWEST = ""
"""The selector's first entry: whichever job runs, and if none does, the newest."""
_UNKNOWN = "\N{EN DASH}"


def job_columns(jobs: Sequence[Document]) -> Columns:
    """The table of jobs, in the order given, as text and numbers."""
    return {
        "job_id": [str(job["job_id"]) for job in jobs],
        "name": [str(job.get("name") or "") for job in jobs],
        "state": [state_text(job) for job in jobs],
        "progress_pct": [progress_pct(job) for job in jobs],
        "step": [_of(job.get("step"), job.get("num_steps")) for job in jobs],
        "eta": [duration(job.get("eta_s")) for job in jobs],
        "elapsed": [duration(job.get("elapsed_s")) for job in jobs],
        "rows_per_s": [count(job.get("rows_per_s")) for job in jobs],
        "loss": [_decimals(job.get("loss")) for job in jobs],
        "auc": [_decimals(job.get("auc")) for job in jobs],
        "valid_auc": [_decimals(job.get("valid_auc")) for job in jobs],
        "stall_pct": [_percent(job.get("stall_pct")) for job in jobs],
        "num_ranks": [job.get("num_ranks") for job in jobs],
        "restarts": [job.get("restarts") for job in jobs],
        "checkpoints": [job.get("checkpoints") for job in jobs],
    }


def job_options(jobs: Sequence[Document]) -> list[tuple[str, str]]:
    """The selector's entries as (value, label), the newest job's following entry first."""
    labels = [
        (str(job["job_id"]), f"{job.get('name') or ''} ({job['state']}) {job['job_id']}".strip())
        for job in jobs
    ]
    return [(NEWEST, "the running one, or the newest"), *labels]


def headline(job: Document | None, address: str) -> str:
    """The lines above the figures, as HTML; everything that people chose is escaped.

    Args:
        job: The one that is shown; `None` while there is none.
        address: The scheduler's.
    """
    if job is None:
        command = escape(f"distrain train job.yaml --scheduler {address}")
        return (
            "No job has been submitted to this scheduler yet. To submit one: "
            f"<code>{command}</code>; <code>distrain init</code> writes such a job.yaml."
        )
    facts = [
        f"step {_of(job.get('step'), job.get('num_steps'))}",
        f"{count(job.get('rows_total'))} rows",
        f"{count(job.get('rows_per_s'))} rows/s",
        f"loss {_decimals(job.get('loss'))}",
        f"AUC {_with_bound(job.get('auc'), job.get('auc_bound'))}",
        f"validation AUC {_with_bound(job.get('valid_auc'), job.get('valid_auc_bound'))}",
        f"waits for data {_percent(job.get('stall_pct'))}",
        f"{duration(job.get('elapsed_s'))} so far",
        f"{duration(job.get('eta_s'))} to go",
    ]
    name = escape(f"{job.get('name') or job['job_id']}: {state_text(job)}")
    lines = [f"<b>{name}</b> &nbsp; {escape(' · '.join(facts))}"]
    lines += [escape(slowest_text(job))] if job.get("slowest") else []
    why = job.get("message") or job.get("why_pending")
    if why:
        lines.append(escape(str(why)).replace("\n", "<br>"))
    return "<br>".join(lines)


def slowest_text(job: Document) -> str:
    """Which rank is the slowest, where it runs, and how far it is behind.

    >>> slowest = {"rank": 1, "step_time_s": 0.012, "median_step_time_s": 0.010}
    >>> slowest_text({"slowest": slowest, "ranks": [{"rank": 1, "worker": "w1", "host": "a"}]})
    'slowest: rank 1 on w1 (a), 12.0 ms a step; median 10.0 ms'
    """
    slowest = job["slowest"]
    rank: Document = next((r for r in job.get("ranks", ()) if r["rank"] == slowest["rank"]), {})
    worker, host = rank.get("worker"), rank.get("host")
    place = " on " + (f"{worker} ({host})" if host else str(worker)) if worker else ""
    time_ms, median_ms = (1e3 * slowest[name] for name in ("step_time_s", "median_step_time_s"))
    step = f"{time_ms:.1f} ms a step; median {median_ms:.1f} ms"
    return f"slowest: rank {slowest['rank']}{place}, {step}"


def state_text(job: Document) -> str:
    """The state, and why, if it ended badly.

    >>> state_text({"state": "failed", "reason": "RankFailed"})
    'failed (RankFailed)'
    """
    reason = job.get("reason")
    return f"{job['state']} ({reason})" if reason else str(job["state"])


def progress_pct(job: Document) -> float:
    """Steps taken, in percent of all; 0 while their number is unknown."""
    steps = job.get("num_steps") or 0
    return round(min(100.0, 100.0 * (job.get("step") or 0) / steps), 1) if steps else 0.0


def duration(seconds: float | None) -> str:
    """A time for people.

    >>> [duration(seconds) for seconds in (8.2, 75, 3_725, 180_000)]
    ['8 s', '1:15 min', '1:02 h', '2 d 2 h']
    """
    if seconds is None or seconds != seconds or seconds < 0:
        return _UNKNOWN
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    if whole < 86400:
        return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def count(number: float | None) -> str:
    """A number of rows for people: `12,345`."""
    return _UNKNOWN if number is None else f"{number:,.0f}"


def _of(part: int | None, whole: int | None) -> str:
    return f"{count(part or 0)} of {count(whole)}" if whole else count(part or 0)


def _decimals(number: float | None) -> str:
    return _UNKNOWN if number is None else f"{number:.4f}"


def _with_bound(number: float | None, bound: float | None) -> str:
    return _decimals(number) + (f" ± {bound:.1g}" if number is not None and bound else "")


def _percent(number: float | None) -> str:
    return _UNKNOWN if number is None else f"{number:.1f} %"
