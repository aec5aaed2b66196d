"""`/v1/jobs/{id}/metrics`: the records of training and validation."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field

from distrain.run_paths import RunPaths
from distrain.runs import NewRecords, NotInRun, open_run_folder, read_new_records
from distrain.service.api.answers import answers
from distrain.service.api.dependencies import VisibleJob
from distrain.service.api.documents import Answer
from distrain.service.api.problems import Problem
from distrain.service.api.streams import streams_of

router = APIRouter(tags=["logs, events, files"])

_READ_BYTES = 4 * 2**20


class Records(Answer):
    """Records in the form and order of `metrics.jsonl`."""

    records: list[dict[str, Any]] = Field(
        description="`split` is `train` or `valid`; `step`, `loss`, `auc`, `rows_per_s`, ..."
    )
    cursor: str = Field(description="As `since` it gives what follows.")
    restart: bool = Field(
        description="These are from the beginning: forget what was read before, since an attempt "
        "took steps again."
    )
    more: bool = Field(description="There is more already.")
    damaged: int = Field(description="Lines that are no records.")


@router.get("/v1/jobs/{job_id}/metrics", responses=answers("not_found"))
async def job_metrics(
    request: Request,
    job: VisibleJob,
    since: Annotated[str | None, Query(max_length=100, description="A `cursor`.")] = None,
    fields: Annotated[
        tuple[str, ...], Query(max_length=40, description="Only these of each record.")
    ] = (),
) -> Records:
    """The records of a job's training and validation, or those since a cursor."""
    work = partial(_read, job.run_dir, since)
    try:
        found = await streams_of(request.app).in_file_thread(work)
    except ValueError as error:
        raise Problem("bad_request", str(error), hint="Begin again without `since`.") from error
    return Records(
        records=[
            {name: value for name, value in record.items() if not fields or name in fields}
            for record in found.records
        ],
        cursor=found.cursor,
        restart=found.restart,
        more=found.more,
        damaged=found.damaged,
    )


def _read(run_dir: str, since: str | None) -> NewRecords:
    try:
        with open_run_folder(run_dir) as folder:
            file = folder.open(RunPaths(Path()).metrics.name)
    except NotInRun:
        return read_new_records(None, since, _READ_BYTES)
    try:
        return read_new_records(file, since, _READ_BYTES)
    finally:
        file.close()
