"""Makes the page's texts about jobs: its table, its selector, the lines above figures; no I/O."""

from collections.abc import Sequence
from html import escape

import yaml

from distrain.formatting import (
    UNKNOWN,
    bounded,
    count,
    main_metrics,
    milliseconds,
    model_step_text,
    number,
    score,
    steps,
)
from distrain.jobs.api_answers import Job
from distrain.jobs.figures import phrases, shown_on
from distrain.runs.report.colours import BAD
from distrain.scheduler.dashboard.figure_data import Columns, Document
from distrain.scheduler.history.ranks import is_straggler

NEWEST = ""  # the selector's first value: the newest running job, or else the newest job
FOLLOW, NOTHING = "the running one, or the newest", "nothing"


def job_columns(jobs: Sequence[Document]) -> Columns:
    """Return the columns of the table of jobs, given their `job_summary` documents."""
    return {
        "job_id": [str(job["id"]) for job in jobs],
        "name": [str(job.get("name") or "") for job in jobs],
        "state": [state_text(job) for job in jobs],
        "progress_pct": [progress_pct(job) for job in jobs],
        "step": [steps(job.get("step"), job.get("num_steps")) for job in jobs],
        "loss": [number(job.get("loss"), 4) for job in jobs],
        "auc": [score(job.get("auc"), job.get("targets")) for job in jobs],
        "valid_auc": [score(job.get("valid_auc"), job.get("valid_targets")) for job in jobs],
        "num_ranks": [job.get("num_ranks") for job in jobs],
        **{one.name: [one.of(job) for job in jobs] for one in shown_on("training")},
    }


def job_options(jobs: Sequence[Document], first: str = FOLLOW) -> list[tuple[str, str]]:
    """Return a selector's entries as (value, label): (`NEWEST`, `first`), then all jobs.

    A job's value is its id.
    """
    labels = [
        (str(job["id"]), f"{job.get('name') or ''} ({job['state']}) {job['id']}".strip())
        for job in jobs
    ]
    return [(NEWEST, first), *labels]


def headline(
    job: Document | None, address: str, missing: str = "", other: Document | None = None
) -> str:
    """Return the lines above the figures, as HTML; all texts from users are escaped.

    Args:
        job: The `job_document` of the shown job; `None` if there is none.
        address: The scheduler's address, for the command that submits a job.
        missing: The id of the requested job if it is unknown, otherwise "".
        other: The document of the job to compare with, if any.
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
        f"step {steps(job.get('step'), job.get('num_steps'))}",
        f"{count(job.get('rows_total'))} rows",
        _scores("validation", job, "valid_"),
        _scores("training", job, ""),
        *_saved(job),
        *phrases(job, "training"),
    ]
    name = escape(f"{job.get('name') or job['id']}: {state_text(job)}")
    colour = f' style="color:{BAD}"' if job["state"] == "failed" else ""
    lines = [f"<b{colour}>{name}</b> &nbsp; {escape(' · '.join(facts))}{_link(job)}"]
    trouble = _trouble_text(job)
    lines += [f'<span style="color:{BAD}">{escape(trouble)}</span>'] if trouble else []
    if other is not None:
        lines.append(f"compared with {escape(str(other['id']))}: {escape(state_text(other))}")
    lines += [escape(_slowest_text(job))] if is_straggler(job.get("slowest")) else []
    why = job.get("message") or job.get("why_pending")
    if why:
        lines.append(escape(str(why)).replace("\n", "<br>"))
    return "<br>".join(lines)


def _link(job: Document) -> str:
    """Return a link to the job's page in the service that submitted it, as HTML.

    "" if the job has no such page, or its URL is not one of HTTP.

    >>> _link({"page": "https://a/jobs/b"}), _link({"page": "javascript:alert(1)"}), _link({})
    (' · <a href="https://a/jobs/b">job page</a>', '', '')
    """
    url = str(job.get("page") or "")
    is_web = url.startswith(("http://", "https://"))
    return f' · <a href="{escape(url)}">job page</a>' if is_web else ""


def _saved(job: Document) -> list[str]:
    saved = model_step_text(
        job.get("model_step"),
        job.get("step"),
        stopped_early=job.get("stopped_early_step") is not None,
        refit_steps=job.get("refit_steps"),
    )
    return [] if saved == UNKNOWN else [f"saved step {saved}"]


def _scores(split: str, job: Document, before: str) -> str:
    found = {name: job.get(f"{before}{name}") for name in ("loss", "auc", "auc_bound", "targets")}
    more = [" ".join(one) for one in main_metrics(found["targets"])]
    if more and found["loss"] is None:
        return f"{split} {', '.join(more)}"
    auc = f"AUC {bounded(found['auc'], found['auc_bound'], 4)}"
    return ", ".join([f"{split} loss {number(found['loss'], 4)}", auc, *more])


def _trouble_text(job: Document) -> str:
    """Return why the previous attempt ended, or why this one stops, as a text.

    "" if neither is the case, or if the job has a reason, which its state shows.
    """
    if job.get("reason"):
        return ""  # the state shows the reason
    texts = [str(m["text"]).splitlines()[0] for m in job.get("timeline", ()) if _is_trouble(m)]
    return f"attempt {job.get('attempt')}; {texts[-1]}" if texts else ""


def _is_trouble(moment: Document) -> bool:
    stops = moment["kind"] == "state" and str(moment["text"]).startswith("stopping:")
    return bool(moment["kind"] == "restart" or stops)


def spec_html(job: Document | None) -> str:
    """Return a job's tags, and its spec in a collapsed section, as HTML; "" if there is no spec."""
    if job is None or "spec" not in job:
        return ""
    tags = ", ".join(f"{name}: {value}" for name, value in (job.get("tags") or {}).items())
    spec = yaml.safe_dump(job["spec"], sort_keys=False, allow_unicode=True)
    return (
        (f"<div>{escape(tags)}</div>" if tags else "")
        + f"<details><summary>Job spec, {escape(str(job['run_dir']))}</summary>"
        + f"<pre>{escape(spec)}</pre></details>"
    )


def _slowest_text(job: Document) -> str:
    """Return a text on the slowest rank, its worker, and its step time against the median.

    >>> slowest = {"rank": 1, "step_time_s": 0.012, "median_step_time_s": 0.010}
    >>> _slowest_text({"slowest": slowest, "ranks": [{"rank": 1, "worker": "w1", "host": "a"}]})
    'slowest: rank 1 on w1 (a), 12.0 ms a step; median 10.0 ms'
    """
    slowest = job["slowest"]
    rank: Document = next((r for r in job.get("ranks", ()) if r["rank"] == slowest["rank"]), {})
    worker, host = rank.get("worker"), rank.get("host")
    place = " on " + (f"{worker} ({host})" if host else str(worker)) if worker else ""
    step, median = (milliseconds(slowest[name]) for name in ("step_time_s", "median_step_time_s"))
    return f"slowest: rank {slowest['rank']}{place}, {step} a step; median {median}"


def state_text(job: Document) -> str:
    """Return a job's state, with the reason of a bad end in parentheses."""
    why = Job.read({**job, "why_pending": ""}).why
    return f"{job['state']} ({why})" if why else str(job["state"])


def progress_pct(job: Document) -> float:
    steps = job.get("num_steps") or 0
    return round(min(100.0, 100.0 * (job.get("step") or 0) / steps), 1) if steps else 0.0
