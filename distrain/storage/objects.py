"""Objects with conditional writes: S3's `If-None-Match` and `If-Match`.

An object store has neither renames nor appends. An object is created once, or replaced only by a
process that has read its last version, so independent processes cannot overwrite each other's work.
"""

import errno
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from distrain.errors import InputError
from distrain.storage.os_errors import only_os_errors
from distrain.storage.urls import check_url

_SCHEMES = ("s3",)
_REFUSED = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409", "404"}
_T = TypeVar("_T")


class Changed(Exception):
    """A conditional write was rejected: another process has created or changed the object."""


@dataclass(frozen=True)
class StoredObject:
    name: str  # below the URL of `Objects`
    size_bytes: int
    modified_s: float  # in seconds since 1970
    version: str  # the ETag


def has_conditional_writes(url: str) -> bool:
    """Return True if the URL's storage supports `Objects`.

    >>> has_conditional_writes("s3://bucket/runs"), has_conditional_writes("gs://bucket/runs")
    (True, False)
    """
    return url.partition("://")[0].lower() in _SCHEMES


class Objects:
    """The objects below a URL.

    Every failure is an `OSError`; `FileNotFoundError` means that an object is missing. A rejected
    conditional write raises `Changed`. The client library retries internally, so a write may be
    rejected because its own earlier try has succeeded. Callers must read the object after a
    rejection.
    """

    def __init__(self, url: str):
        check_url(url)
        if not has_conditional_writes(url):
            raise InputError(
                "this storage is not known to support conditional writes",
                where={"url": url},
                hint="Use a folder, or an object store that speaks S3: s3://BUCKET/PATH.",
            )
        self.url = url.rstrip("/")
        self._bucket, _, prefix = self.url.partition("://")[2].partition("/")
        self._prefix = prefix + "/" if prefix else ""
        with only_os_errors(errno.EIO):
            from fsspec.core import url_to_fs

            self._filesystem = url_to_fs(self.url)[0]

    def read(self, name: str) -> tuple[bytes, str]:
        """Return the content of an object, and its version."""
        return self._get(name, {})

    def read_range(self, name: str, first: int, num_bytes: int) -> bytes:
        """Return `num_bytes` bytes of an object from `first` on; fewer, or none, at its end."""
        if num_bytes <= 0:
            return b""
        try:
            return self._get(name, {"Range": f"bytes={first}-{first + num_bytes - 1}"})[0]
        except FileNotFoundError:
            raise
        except OSError as error:
            if _code(error) in ("InvalidRange", "416"):  # the range begins after the object's end
                return b""
            raise

    def find(self, name: str) -> StoredObject:
        """Return the size, time and version of an object, without reading it."""
        answer = self._call("head_object", Key=self._prefix + name)
        modified_s = answer["LastModified"].timestamp()
        return StoredObject(name, int(answer["ContentLength"]), modified_s, str(answer["ETag"]))

    def create(self, name: str, content: bytes) -> str:
        """Create an object and return its version; raises `Changed` if the object exists."""
        return self._put(name, content, IfNoneMatch="*")

    def replace(self, name: str, content: bytes, version: str) -> str:
        """Replace an object and return its new version.

        Raises `Changed` unless `version` is its current version.
        """
        return self._put(name, content, IfMatch=version)

    def put(self, name: str, content: bytes) -> str:
        """Write an object unconditionally and return its version; for objects with one writer."""
        return self._put(name, content)

    def delete(self, name: str) -> None:
        """Remove an object if it exists."""
        self._call("delete_object", Key=self._prefix + name)

    def find_all(self, prefix: str = "", after: str = "") -> Iterator[StoredObject]:
        """Yield objects whose names begin with `prefix` and come after `after`, sorted by name."""
        start = {"StartAfter": self._prefix + after} if after else {}
        for item in self._listed("Contents", prefix, **start):
            name = str(item["Key"]).removeprefix(self._prefix)
            modified_s = item["LastModified"].timestamp()
            yield StoredObject(name, int(item["Size"]), modified_s, str(item["ETag"]))

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders below `prefix`, which is empty or ends with `/`."""
        items = self._listed("CommonPrefixes", prefix, Delimiter="/")
        begin = self._prefix + prefix
        return [str(item["Prefix"]).removeprefix(begin).rstrip("/") for item in items]

    def _listed(self, kind: str, prefix: str, **wanted: str) -> Iterator[dict[str, Any]]:
        start = dict[str, str]()
        while True:
            page = self._call("list_objects_v2", Prefix=self._prefix + prefix, **(start or wanted))
            yield from page.get(kind, ())
            if not page.get("IsTruncated"):
                return
            start = {"ContinuationToken": page["NextContinuationToken"]}
            start |= {name: value for name, value in wanted.items() if name == "Delimiter"}

    def _get(self, name: str, wanted: dict[str, str]) -> tuple[bytes, str]:
        async def get() -> tuple[bytes, str]:
            answer = await self._filesystem._call_s3(
                "get_object", Bucket=self._bucket, Key=self._prefix + name, **wanted
            )
            async with answer["Body"] as body:
                return await body.read(), str(answer["ETag"])

        return self._run(get)

    def _put(self, name: str, content: bytes, **condition: str) -> str:
        try:
            answer = self._call("put_object", Key=self._prefix + name, Body=content, **condition)
        except OSError as error:
            if condition and (_code(error) in _REFUSED or isinstance(error, FileExistsError)):
                raise Changed(f"{self.url}/{name}") from error
            raise
        return str(answer["ETag"])

    def _call(self, method: str, **arguments: Any) -> Any:
        return self._run(
            lambda: self._filesystem._call_s3(method, Bucket=self._bucket, **arguments)
        )

    def _run(self, call: Callable[[], Awaitable[_T]]) -> _T:
        from fsspec.asyn import sync

        with only_os_errors(errno.EIO):
            result: _T = sync(self._filesystem.loop, call)
            return result


def _code(error: BaseException) -> str:
    link: BaseException | None = error
    while link is not None:
        answer = getattr(link, "response", None)
        if isinstance(answer, dict):
            return str(answer.get("Error", {}).get("Code", ""))
        link = link.__cause__
    return ""
