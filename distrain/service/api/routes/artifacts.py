"""`/v1/jobs/{id}/artifacts`: the files of a job's run folder."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from distrain.jobs.api_answers import Artifact, Artifacts, utc
from distrain.runs.run_folder import NotInRun
from distrain.runs.stored.folder import RunFileReader
from distrain.service.api.dependencies import VisibleJob
from distrain.service.api.openapi import answers
from distrain.service.api.problems import Problem, not_found
from distrain.service.api.streams.artifacts import (
    CHUNK_BYTES,
    NoSuchBytes,
    chunks_of,
    headers_of,
    is_named,
    list_files,
    open_artifact,
    wanted_range,
)
from distrain.service.api.streams.stream_state import SAFE, ApiStreams, streams_of

router = APIRouter(tags=["logs, events, files"])

_binary: dict[str, Any] = {
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
}
_ANSWERS: dict[int, dict[str, Any]] = {
    200: {"description": "The file.", **_binary},
    206: {"description": "The bytes of `Range`.", **_binary},
    304: {"description": "The file has not changed."},
}


@router.get("/v1/jobs/{job_id}/artifacts", responses=answers("not_found"))
async def job_artifacts(
    request: Request,
    job: VisibleJob,
    below: Annotated[
        str,
        Query(
            max_length=1000,
            description="List only the files in this folder and its subfolders; default: all.",
        ),
    ] = "",
    after: Annotated[
        str,
        Query(
            max_length=4000,
            description="The `next_cursor` of the previous page, or any file name: list only the "
            "files after it.",
        ),
    ] = "",
    limit: Annotated[
        int, Query(ge=1, le=1000, description="The maximum number of files in a page.")
    ] = 1000,
) -> Artifacts:
    """List the files of a job (model, checkpoints, logs, reports), sorted by name.

    Symbolic links are skipped. The list is empty if the job has not started or has no such folder.
    """
    work = partial(list_files, job.run_dir, below.strip("/"), after, limit)
    try:
        found, more = await streams_of(request.app).in_file_thread(work)
    except NotInRun:
        found, more = [], False  # the job has not started, or has no such folder yet
    return Artifacts(
        artifacts=[
            Artifact(name=f.name, size_bytes=f.size_bytes, modified_at=utc(f.modified_s) or "")
            for f in found
        ],
        next_cursor=found[-1].name if more else None,
    )


@router.head(
    "/v1/jobs/{job_id}/artifacts/{path:path}",
    response_class=Response,
    description="Return the headers of `GET` without the file, such as its size and `ETag`.",
    responses=answers(
        "not_found",
        others={200: {"description": "The headers."}, 304: _ANSWERS[304]},
    ),
)
@router.get(
    "/v1/jobs/{job_id}/artifacts/{path:path}",
    response_class=Response,
    responses=answers("not_found", "range", others=_ANSWERS),
)
async def job_artifact(
    request: Request,
    job: VisibleJob,
    path: Annotated[str, Path(description="The file's name, as the list of artifacts has it.")],
) -> Response:
    """Return a file of a job; with the header `Range`, one range of its bytes.

    The headers `If-None-Match` and `If-Range` are supported.
    """
    streams = streams_of(request.app)
    try:
        return await streams.in_file_thread(partial(_opened, request, streams, job.run_dir, path))
    except NotInRun as error:
        raise not_found(f"file {path!r} of job {job.id!r}") from error


def _opened(request: Request, streams: ApiStreams, run_dir: str, path: str) -> Response:
    file = open_artifact(run_dir, path)
    try:
        return _answer(request, streams, file)
    except BaseException:
        file.close()
        raise


def _answer(request: Request, streams: ApiStreams, file: RunFileReader) -> Response:
    """Return the response to a request for a file; called in a thread, since it may read."""
    headers = SAFE | {"Cache-Control": "private, no-cache"} | headers_of(file)
    if is_named(request.headers.get("if-none-match"), file.etag):
        file.close()
        return Response(status_code=304, headers=headers)
    first, end, status = 0, file.size_bytes, 200
    is_same = request.headers.get("if-range", file.etag) == file.etag
    if is_same and request.method == "GET":  # `Range` means nothing with other methods
        try:
            wanted = wanted_range(request.headers.get("range"), file.size_bytes)
        except NoSuchBytes as error:
            size = {"Content-Range": f"bytes */{file.size_bytes}"}
            detail = f"the file has {file.size_bytes} bytes"
            raise Problem("range", detail, extra_headers=size) from error
        if wanted is not None:
            first, end = wanted
            status = 206
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{file.size_bytes}"
    headers["Content-Length"] = str(end - first)
    if request.method == "HEAD":
        file.close()
        return Response(status_code=status, headers=headers)
    if end - first <= CHUNK_BYTES:  # as when many clients follow a log
        try:
            data = file.pread(end - first, first)
        except FileNotFoundError as error:  # an object that was deleted after it was opened
            raise NotInRun(file.name) from error
        if len(data) == end - first:
            file.close()
            return Response(data, status, headers)
    chunks = chunks_of(file, first, end, streams.in_file_thread)
    return _FileResponse(chunks, status, headers, file.close)


class _FileResponse(StreamingResponse):
    def __init__(
        self, content: Any, status: int, headers: dict[str, str], close: Callable[[], object]
    ):
        super().__init__(content, status, headers)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()
