"""From a table to a job: columns inferred, rows prepared once, and a spec fitted to them."""

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrain.formatting import some
from distrain.jobs.spec.presets import check_kind
from distrain.launch.new_job import new_job
from distrain.prep.features.config import FeatureConfig
from distrain.prep.features.inference.asked import Asked, Task
from distrain.prep.features.inference.infer import infer_features
from distrain.prep.preparation import PREP_JSON, prepare
from distrain.prep.request import PrepRequest
from distrain.prep.rows_in_memory import is_dask, store_rows
from distrain.storage.identity import file_identity
from distrain.storage.inputs import InputFile, list_inputs
from distrain.version import build
from distrain.workers.sources import ClusterRequest, open_cluster

if TYPE_CHECKING:
    from distrain.prep.progress import ProgressCallback
    from distrain.prep.request import PrepResult

_PREPARING_THREADS = 2
_MOST_NAMED = 8


@dataclass(frozen=True)
class TableRequest:
    """A table to train on.

    Attributes:
        rows: What `store_rows` takes; or files, folders, globs or URLs, one or several.
        place: A folder for rows and for prepared data, which later runs use again.
        asked: What of the features document is not to be inferred.
        valid_rows: The rows to validate on, as `rows`; `None`: some of `rows`.
        features: A features document, or its file, in place of an inferred one.
        model: A model or preset by name, or a section `model`; `None`: one that suits the table.
        scheduler: The Dask cluster that prepares the rows, as of `ClusterRequest`.
    """

    rows: Any
    place: Path
    asked: Asked = Asked()  # noqa: RUF009
    valid_rows: Any = None
    features: Mapping[str, Any] | str | Path | None = None
    model: Mapping[str, Any] | str | None = None
    scheduler: Any = None

    @property
    def kind(self) -> str | None:
        """The model's name; `None` for one that suits the table."""
        model = self.model
        return model.get("kind") if isinstance(model, Mapping) else model


@dataclass(frozen=True)
class TableJob:
    document: dict[str, Any]  # the job spec
    features: str  # the features document, as YAML
    prepared: "PrepResult | None"  # `None` where the rows had been prepared before
    decisions: tuple[str, ...]  # in words, for people


def asked_of(
    target: str | Sequence[str] | None,
    task: Task | None = None,
    valid: Any = None,
    time: str | None = None,
    weight: str | None = None,
) -> tuple[Asked, Any]:
    """Return what is asked of the features document, and rows to validate on, if `valid` is rows.

    Arguments are those of `distrain.fit`.
    """
    targets = (target,) if isinstance(target, str) else tuple(target or ())
    is_split = isinstance(valid, Mapping) and isinstance(valid.get("by"), str)
    if valid is None or is_split or isinstance(valid, bool | int | float):
        return Asked(targets, task, valid, time, weight), None
    return Asked(targets, task, False, time, weight), valid


def job_of_table(
    request: TableRequest,
    say: Callable[[str], object],
    on_progress: "ProgressCallback | None" = None,
) -> TableJob:
    """Infer what the columns are, prepare the rows unless they are, and fit a job to them.

    Args:
        say: Gets notes for people.
        on_progress: As of `prepare`.

    Raises:
        DataError: The rows cannot be used, or a column that was asked for.
        DistrainError: As of `prepare`, `store_rows` and `new_job`.
    """
    place = request.place.absolute()
    if (kind := request.kind) is not None:
        check_kind(kind)
    files = _files(request.rows, place)
    valid = [] if request.valid_rows is None else _files(request.valid_rows, place)
    config, text, decisions = _features(request, files)
    data = place / f"data-{_key([*files, *valid], config, text)}"
    prepared = None
    if not (data / PREP_JSON).exists():
        inputs, valid_inputs = (tuple(file.path for file in one) for one in (files, valid))
        wanted = PrepRequest(inputs, data, valid=valid_inputs, features=config)
        cluster = ClusterRequest(_scheduler(request), _PREPARING_THREADS, in_process=True)
        with open_cluster(cluster) as client:
            prepared = prepare(wanted, client, on_progress)
    document = _job(data, request, say)
    return TableJob(document, text, prepared, (*decisions, *_facts_of(document, data)))


def _files(rows: Any, place: Path) -> list[InputFile]:
    names = [rows] if isinstance(rows, str | Path) else rows
    if isinstance(names, list | tuple) and names and all(isinstance(n, str | Path) for n in names):
        return list_inputs([str(name) for name in names])
    return list_inputs([store_rows(rows, place)])


def _features(
    request: TableRequest, files: Sequence[InputFile]
) -> tuple[FeatureConfig, str, tuple[str, ...]]:
    """The features document, its text, and what it decides."""
    if (given := request.features) is not None:
        config = (
            FeatureConfig.load(given)
            if isinstance(given, str | Path)
            else FeatureConfig.parse(given)
        )
        return config, config.text, ()
    inferred = infer_features(files, request.asked)
    document, left_out = inferred.features.document, [*inferred.left_out]
    targets = ", ".join(target.column for target in document.targets.values())
    omitted = f"; left out: {some(left_out, _MOST_NAMED)}" if left_out else ""
    split = inferred.split_reason if request.valid_rows is None else "the rows given for it"
    lines = (
        f"target: {targets} ({inferred.target_reason})",
        f"features: {len(document.columns)} from {inferred.sample}{omitted}",
        f"validation: {split}",
    )
    return inferred.features, inferred.text, lines


def _key(files: Sequence[InputFile], config: FeatureConfig, text: str) -> str:
    """A name that differs where the prepared rows may."""
    paths = [file.path for file in files] + [join.file for join in config.document.joins]
    # A server that tells no version may have other rows each time.
    versions = [file_identity(path) or uuid.uuid4().hex for path in paths]
    content = "\n".join([build(), text, *versions])
    return hashlib.sha256(content.encode()).hexdigest()[:20]


def _scheduler(request: TableRequest) -> Any:
    """The cluster that prepares the rows; that of this process where they are Dask's."""
    if request.scheduler is not None or not is_dask(request.rows):
        return request.scheduler
    from distributed import default_client

    with suppress(ValueError):  # there is none: Dask computes in this process, too
        return default_client()
    return None


def _job(data: Path, request: TableRequest, say: Callable[[str], object]) -> dict[str, Any]:
    document = new_job(data, request.kind, say)
    if isinstance(request.model, Mapping):
        document["model"] |= request.model
    if request.scheduler is None:
        document["resources"] |= {"backend": "inline", "num_ranks": 1}
    return document


def _facts_of(document: Mapping[str, Any], data: Path) -> tuple[str, str]:
    train = document["train"]
    optimizer = train["optimizer"]
    steps = f"{train['epochs']} epochs at most, {train['global_batch_size']} rows a step"
    return (
        f"model: {document['model']['kind']}, {steps}, {optimizer['kind']} {optimizer['lr']:g}",
        f"prepared rows: {data}",
    )
