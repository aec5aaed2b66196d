"""`progress.json`: how a run stands while it has no summary. Pure, but for two functions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from distrain.coordinator.view import Checkpoints, JobView
from distrain.report.shapes import outcome_of
from distrain.run_paths import RunPaths
from distrain.storage import whole_file


@dataclass(frozen=True)
class Standing:
    """What `progress.json` holds: of the summary what is known before the end.

    Attributes:
        state: The job's: `pending`, `starting`, `running`, `stopping` or `restarting`.
        attempts: Attempts begun so far.
        restarts: Attempts that ended early, as in the summary.
        checkpoints: Those written so far, as in the summary.
        reader: Who reads row groups, and why.
        places: Per rank of the current attempt, its `host`, `device` and `hardware`; empty until
            all have started.
        earlier: The `restarts` and `checkpoints` of earlier commands, which are among those above.
        warm_start: With whose weights the run began, as in the summary.
    """

    state: str
    attempts: int
    restarts: tuple[dict[str, Any], ...] = ()
    checkpoints: Mapping[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    reader: str | None = None
    places: tuple[Mapping[str, str], ...] = ()
    earlier: Mapping[str, Any] = field(default_factory=dict)
    warm_start: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, view: JobView, before: Mapping[str, Any]) -> "Standing":
        """How a run stands.

        Args:
            view: The job now.
            before: What earlier commands left, as `all_restarts` takes it.
        """
        nothing = Checkpoints()
        return cls(
            state=view.state.value,
            attempts=max(view.attempt, before.get("attempts") or 0),
            restarts=tuple(all_restarts(before, view)),
            checkpoints=all_checkpoints(before, view.checkpoints),
            parameters=view.parameters,
            reader=view.reader,
            places=tuple(dict(place) for place in view.rank_places),
            earlier={
                "restarts": earlier_restarts(before),
                "checkpoints": all_checkpoints(before, nothing),
            },
            warm_start=view.warm_start or before.get("warm_start"),
        )

    def write(self, paths: RunPaths) -> None:
        """Write it, whole.

        Raises:
            OutputError: It cannot be written; what was there is as it was.
        """
        with whole_file(paths.progress) as partial:
            partial.write_text(json.dumps(asdict(self), indent=2) + "\n")


def read_standing(paths: RunPaths) -> Mapping[str, Any] | None:
    """What `progress.json` holds; `None` if there is none, or none that can be read."""
    try:
        return outcome_of(paths.progress.read_text())
    except (OSError, ValueError):
        return None


def all_restarts(before: Mapping[str, Any], view: JobView) -> Sequence[dict[str, Any]]:
    """Attempts that ended early, of this command and those before it.

    Args:
        before: What the summary, or the standing, said before this command.
        view: The job now.
    """
    return [*earlier_restarts(before), *map(asdict, view.restarts)]


def earlier_restarts(before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those of earlier commands; that the last of them ended is one, too."""
    restarts = [dict(setback) for setback in before.get("restarts", ())]
    if before.get("reason"):
        told = {name: before.get(name) for name in ("reason", "message")}
        end = {"attempt": before.get("attempts"), "step": before.get("steps"), "after_s": None}
        restarts.append({**told, **end})
    return restarts


def all_checkpoints(before: Mapping[str, Any], now: Checkpoints) -> dict[str, Any]:
    """The checkpoints of earlier commands and of this one, as one."""
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
