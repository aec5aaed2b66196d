"""`progress.json`: how a run stands while it has no summary. Pure, but for two functions."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from distrain.jobs import Checkpoints, JobView
from distrain.run_paths import RunPaths
from distrain.runs.validation import read_outcome, write_json


@dataclass(frozen=True)
class RunStatus:
    """What `progress.json` holds: of the summary what is known before the end."""

    state: str  # `pending`, `starting`, `running`, `stopping` or `restarting`
    attempts: int  # attempts begun so far
    restarts: tuple[dict[str, Any], ...] = ()  # attempts that ended early, as in the summary
    # checkpoints written so far, as in the summary
    checkpoints: Mapping[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    reader: str | None = None  # the reader of row groups, and why it was chosen
    # per rank of the current attempt, its `host`, `device` and `hardware`; empty until all have
    # started
    places: tuple[Mapping[str, str], ...] = ()
    # the `restarts` and `checkpoints` of earlier commands, which are among those above
    earlier: Mapping[str, Any] = field(default_factory=dict)
    # with whose weights the run began, as in the summary
    warm_start: Mapping[str, Any] | None = None
    # the first attempt of the submission that it is about, if a service wrote it
    first_attempt: int | None = None

    @classmethod
    def of(
        cls, view: JobView, before: Mapping[str, Any], first_attempt: int | None = None
    ) -> "RunStatus":
        """The status of a job, after what earlier commands left (see `all_restarts`)."""
        return cls(
            state=view.state.value,
            attempts=max(view.attempt, before.get("attempts") or 0),
            restarts=tuple(all_restarts(before, view)),
            checkpoints=all_checkpoints(before, view.checkpoints),
            parameters=view.parameters,
            reader=view.reader,
            places=tuple(dict(place) for place in view.rank_places),
            earlier={
                "restarts": _earlier_restarts(before),
                "checkpoints": all_checkpoints(before, Checkpoints()),
            },
            warm_start=view.warm_start or before.get("warm_start"),
            first_attempt=first_attempt,
        )

    def write(self, paths: RunPaths) -> None:
        write_json(paths.progress, asdict(self))


def read_status(paths: RunPaths) -> Mapping[str, Any] | None:
    """What `progress.json` holds; `None` if there is none, or none that can be read."""
    return read_outcome(paths.progress)


def all_restarts(before: Mapping[str, Any], view: JobView) -> Sequence[dict[str, Any]]:
    """Attempts that ended early; `before` is the summary or status that earlier commands left."""
    return [*_earlier_restarts(before), *map(asdict, view.restarts)]


def _earlier_restarts(before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Restarts of earlier commands; the end of the last command counts as one, too."""
    restarts = [dict(restart) for restart in before.get("restarts", ())]
    if before.get("reason"):
        why = {name: before.get(name) for name in ("reason", "message")}
        end = {"attempt": before.get("attempts"), "step": before.get("steps"), "after_s": None}
        restarts.append({**why, **end})
    return restarts


def all_checkpoints(before: Mapping[str, Any], now: Checkpoints) -> dict[str, Any]:
    earlier = Checkpoints(**before.get("checkpoints", {}))
    last = now if now.count else earlier
    return {
        "count": earlier.count + now.count,
        "step": last.step,
        "path": last.path,
        "stood_still_s": earlier.stood_still_s + now.stood_still_s,
        "write_s": earlier.write_s + now.write_s,
        "failed": earlier.failed + now.failed,
    }
