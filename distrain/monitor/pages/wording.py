"""Jobs in words: the table, the selector, and the lines above the figures. Pure."""

from collections.abc import Sequence
from html import escape

import yaml

from distrain.monitor.pages.columns import Columns, Document

NEWEST = ""
"""The selector's first entry: whichever job runs, and if none does, the newest."""
FOLLOW, NOTHING = "the running one, or the newest", "nothing"
BAD = "#b3261e"
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


def job_options(jobs: Sequence[Document], first: str = FOLLOW) -> list[tuple[str, str]]:
    """The selector's entries as (value, label), `first` before all jobs."""
    labels = [
        (str(job["job_id"]), f"{job.get('name') or ''} ({job['state']}) {job['job_id']}".strip())
        for job in jobs
    ]
    return [(NEWEST, first), *labels]


def headline(
    job: Document | None, address: str, missing: str = "", other: Document | None = None
) -> str:
    """The lines above the figures, as HTML; everything that people chose is escaped.

    Args:
        job: The one that is shown; `None` while there is none.
        address: The scheduler's.
        missing: The one that was asked for and is not known.
        other: The one that is laid over it.
    """
    if job is None and missing:
        return (
            f'<b style="color:{BAD}">No job <code>{escape(missing)}</code> is known here.</b> The '
            "name may be mistyped, or the scheduler has forgotten it: pick one above."
        )
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
    colour = f' style="color:{BAD}"' if job["state"] == "failed" else ""
    lines = [f"<b{colour}>{name}</b> &nbsp; {escape(' · '.join(facts))}"]
    trouble = trouble_text(job)
    lines += [f'<span style="color:{BAD}">{escape(trouble)}</span>'] if trouble else []
    if other is not None:
        lines.append(f"laid over: {escape(str(other['job_id']))}, {escape(state_text(other))}")
    lines += [escape(slowest_text(job))] if job.get("slowest") else []
    why = job.get("message") or job.get("why_pending")
    if why:
        lines.append(escape(str(why)).replace("\n", "<br>"))
    return "<br>".join(lines)


def trouble_text(job: Document) -> str:
    """Why the attempt before ended, or why this one is ending; "" of a job without either.

    >>> moment = {"kind": "restart", "text": "attempt 1 ended: RankDied: rank 1 was killed"}
    >>> trouble_text({"state": "running", "attempt": 2, "timeline": [moment]})
    'attempt 2; attempt 1 ended: RankDied: rank 1 was killed'
    """
    if job.get("reason"):
        return ""  # the state tells
    told = [str(m["text"]).splitlines()[0] for m in job.get("timeline", ()) if _is_trouble(m)]
    return f"attempt {job.get('attempt')}; {told[-1]}" if told else ""


def _is_trouble(moment: Document) -> bool:
    stops = moment["kind"] == "state" and str(moment["text"]).startswith("stopping:")
    return bool(moment["kind"] == "restart" or stops)


def spec_html(job: Document | None) -> str:
    """Tags, and the job spec behind a click, as HTML."""
    if job is None or "spec" not in job:
        return ""
    tags = ", ".join(f"{name}: {value}" for name, value in (job.get("tags") or {}).items())
    spec = yaml.safe_dump(job["spec"], sort_keys=False, allow_unicode=True)
    return (
        (f"<div>{escape(tags)}</div>" if tags else "")
        + f"<details><summary>Job spec, {escape(str(job['run_dir']))}</summary>"
        + f"<pre>{escape(spec)}</pre></details>"
    )


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
    if number is None or bound is None:
        return _decimals(number)
    return f"{_decimals(number)} (bins: within {bound:.1g})" if bound else _decimals(number)


def _percent(number: float | None) -> str:
    return _UNKNOWN if number is None else f"{number:.1f} %"
