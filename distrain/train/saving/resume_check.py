"""Whether a training may go on from a checkpoint: what must be as it was, and what need not."""

from collections.abc import Mapping
from typing import Any

from distrain.errors import DataError, SpecError
from distrain.spec import MAY_DIFFER_WITHOUT_DECAY, JobSpec, different_fields
from distrain.train.data import Inputs


def progress_values(spec: JobSpec, inputs: Inputs) -> dict[str, Any]:
    return {"spec": spec.model_dump(mode="json"), "fingerprints": _fingerprints(inputs)}


def check_resumable(
    values: Mapping[str, Any], spec: JobSpec, inputs: Inputs, checkpoint: str
) -> None:
    """Refuse a checkpoint of another training."""
    if "spec" not in values or "fingerprints" not in values:
        raise SpecError(
            "not a checkpoint of a training job: it does not say of which spec and data",
            where={"checkpoint": checkpoint},
        )
    problems = different_fields(values["spec"], spec, values.get("step"))
    if problems:
        raise SpecError(
            "the job is not the one that the checkpoint is of:\n  " + "\n  ".join(problems),
            where={"checkpoint": checkpoint},
            hint=f"Set these fields back, or begin a new run.{_why_no_longer(problems, spec)}",
        )
    now = _fingerprints(inputs)
    for split, saved in values["fingerprints"].items():
        if saved is not None and now[split] is not None and saved != now[split]:
            raise DataError(
                f"the files of data.{split} are not those that the checkpoint was trained with",
                where={"checkpoint": checkpoint, "then": saved, "now": now[split]},
                hint="Files may move, but neither change nor come or go.",
            )


def _why_no_longer(problems: list[str], spec: JobSpec) -> str:
    if not any(problem.startswith(MAY_DIFFER_WITHOUT_DECAY) for problem in problems):
        return ""
    return (
        f" The job's length cannot change: its learning rate falls until the last step "
        f"(train.schedule.decay is {spec.train.schedule.decay}), so steps that were taken would "
        "have had other rates. A new run may begin with its weights: train.init_from."
    )


def _fingerprints(inputs: Inputs) -> dict[str, str | None]:
    valid = None if inputs.valid is None else inputs.valid.fingerprint
    return {"train": inputs.train.fingerprint, "valid": valid}
