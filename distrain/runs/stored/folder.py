"""A run directory in an object store, for reading.

`record.json` has all that is true about it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from distrain.errors import InputError, OutputError, Unavailable, problem_in
from distrain.jobs.run_paths import RunPaths, attempts_of
from distrain.runs.run_file import ServiceMark
from distrain.runs.run_folder import FileInRun, NotInRun, RunFolder, parts_of
from distrain.storage.objects import Changed, Objects
from distrain.storage.retrying import first_line, is_transient
from distrain.storage.urls import is_remote

RECORD = "record.json"
TAIL_BYTES = 2**16
"""Of records that stand in `record.json` itself; more become a segment."""
RECORDS = "records/"
"""Where segments lie."""

_TRIES = 5  # how often it is looked at while files are written anew
_HELD_BYTES = 2**20
_HINT = "Check the bucket, the credentials of the service, and that its server answers."


@dataclass(frozen=True)
class RecordSegment:
    """An object that holds some bytes of a file, and never changes."""

    name: str
    size_bytes: int


@dataclass(frozen=True)
class RecordedFile:
    """A file: the bytes of its segments, and a text behind them."""

    text: str
    modified_s: float
    segments: tuple[RecordSegment, ...] = ()
    line: int = 1  # grows when the file is written anew instead of longer

    @property
    def size_bytes(self) -> int:
        return self.in_segments_bytes + len(self.text.encode())

    @property
    def in_segments_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def says_the_same(self, other: "RecordedFile | None") -> bool:
        return other is not None and replace(other, modified_s=self.modified_s) == self


@dataclass(frozen=True)
class RunRecord:
    """What `record.json` holds."""

    job_id: str
    # the service and the lease that wrote last: no earlier lease can write any more
    service: ServiceMark
    number: int = 0  # grows with every write
    writer: str = ""  # names the write, so that a write whose answer was lost is recognised
    # by their names in the run directory
    files: Mapping[str, RecordedFile] = field(default_factory=dict)

    def dumps(self) -> bytes:
        return (json.dumps(asdict(self)) + "\n").encode()


_RECORD = TypeAdapter(RunRecord)


def loads(data: bytes, place: str) -> RunRecord:
    """The inverse of `RunRecord.dumps`; raises an `InputError` for what is none."""
    try:
        return _RECORD.validate_json(data)
    except ValidationError as error:
        what = f"not a {RECORD}: {problem_in(error)}"
        raise InputError(what, where={"path": f"{place}/{RECORD}"}) from None


class StoredFolder(AbstractContextManager["StoredFolder"]):
    """A run directory in an object store, read as `RunFolder` reads one on a filesystem."""

    def __init__(self, url: str):
        self.objects = Objects(url)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None: ...

    def record(self) -> RunRecord | None:
        """What a service has recorded; `None`: nothing yet."""
        try:
            return loads(self.objects.read(RECORD)[0], self.objects.url)
        except FileNotFoundError:
            return None

    def open(self, name: str) -> "RecordedReader | ObjectReader":
        name = "/".join(parts_of(name))
        record = self.record()
        if record is not None and name in record.files:
            return RecordedReader(self, name, record.files[name])
        if _is_own(name):
            raise NotInRun(name)
        try:
            item = self.objects.find(name)
        except FileNotFoundError as error:
            raise NotInRun(name) from error
        etag = f'"{item.version.strip(chr(34))}"'
        return ObjectReader(self.objects, name, item.size_bytes, item.modified_s, etag)

    def read(self, name: str) -> bytes:
        file = self.open(name)
        return file.pread(file.size_bytes, 0)

    def attempts(self) -> tuple[int, ...]:
        names = [*self.objects.folders("logs/"), *self.objects.folders("audit/")]
        return attempts_of(names)

    def files(self, below: str = "", after: str = "") -> Iterator[FileInRun]:
        """All files in order of their names; errors and arguments as `RunFolder.files`."""
        prefix = "/".join(parts_of(below)) + "/" if below else ""
        record = self.record()
        recorded = sorted(record.files.items()) if record is not None and not prefix else []
        waiting = [FileInRun(n, f.size_bytes, f.modified_s) for n, f in recorded if n > after]
        empty = True
        for item in self.objects.find_all(prefix, after):
            empty = False
            if _is_own(item.name):
                continue
            while waiting and waiting[0].name < item.name:
                yield waiting.pop(0)
            if not (waiting and waiting[0].name == item.name):
                yield FileInRun(item.name, item.size_bytes, item.modified_s)
        yield from waiting
        if empty and prefix and not after:
            raise NotInRun(below)

    def log_files(self, rank: int, attempt: int) -> "tuple[StoredLogFiles, str]":
        log = RunPaths(Path()).log(rank, attempt)
        return StoredLogFiles(self.objects, f"{log.parent.as_posix()}/", log.name), log.name


@dataclass(frozen=True)
class ObjectReader:
    objects: Objects
    name: str
    size_bytes: int
    modified_s: float
    etag: str
    number: int = 0

    def pread(self, num_bytes: int, first: int) -> bytes:
        return self.objects.read_range(self.name, first, min(num_bytes, self.size_bytes - first))

    def close(self) -> None: ...


class RecordedReader:
    """A recorded file, as it was when it was opened.

    If its segments are joined meanwhile, the joined one is read.
    """

    def __init__(self, folder: StoredFolder, name: str, file: RecordedFile):
        self._folder, self._file = folder, file
        self.name = name
        self.size_bytes, self.modified_s = file.size_bytes, file.modified_s
        self.number = file.line
        self.etag = f'"{file.line:x}-{file.size_bytes:x}-{file.modified_s:.6f}"'

    def pread(self, num_bytes: int, first: int) -> bytes:
        num_bytes = min(num_bytes, self.size_bytes - first)
        for _ in range(_TRIES):
            try:
                return self._read(num_bytes, first)
            except FileNotFoundError:
                record = self._folder.record()
                file = record.files.get(self.name) if record is not None else None
                if file is None or file.line != self._file.line:
                    return b""
                self._file = file
        return self._read(num_bytes, first)

    def close(self) -> None: ...

    def _read(self, num_bytes: int, first: int) -> bytes:
        parts, at, end = [], 0, first + num_bytes
        for segment in self._file.segments:
            begin, until = max(first, at), min(end, at + segment.size_bytes)
            if begin < until:
                parts.append(_of_segment(self._folder.objects, segment, begin - at, until - begin))
            at += segment.size_bytes
        text = self._file.text.encode()
        parts.append(text[max(0, first - at) : max(0, end - at)])
        return b"".join(parts)


def _of_segment(objects: Objects, segment: RecordSegment, first: int, num_bytes: int) -> bytes:
    if segment.size_bytes > _HELD_BYTES:
        return objects.read_range(segment.name, first, num_bytes)
    return _whole(objects.url, segment.name)[first : first + num_bytes]


@lru_cache(maxsize=64)
def _whole(url: str, name: str) -> bytes:
    return Objects(url).read(name)[0]


class StoredLogFiles:
    def __init__(self, objects: Objects, prefix: str, log_name: str):
        self._objects, self._prefix, self._log_name = objects, prefix, log_name

    def sizes(self) -> dict[str, int]:
        items = self._objects.find_all(self._prefix + self._log_name)
        return {item.name.removeprefix(self._prefix): item.size_bytes for item in items}

    def read(self, name: str, first: int, num_bytes: int) -> bytes:
        return self._objects.read_range(self._prefix + name, first, num_bytes)

    def modified_s(self, name: str) -> float:
        return self._objects.find(self._prefix + name).modified_s

    def close(self) -> None: ...


def _is_own(name: str) -> bool:
    return name == RECORD or name.startswith(RECORDS)


@contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Raise a store's errors inside as `Unavailable` if they may pass, else as `OutputError`."""
    try:
        yield
    except OSError as error:
        passing = is_transient(error)
        kind = Unavailable if passing else OutputError
        text = f"the object store {'does not answer' if passing else 'refuses'}"
        raise kind(f"{text}: {first_line(error)}", where={"url": url}, hint=_HINT) from error


def open_run_folder(run_dir: str | Path) -> RunFolder | StoredFolder:
    """A run directory, by its path or URL; `NotInRun` if this machine has no such folder."""
    if is_remote(run_dir):
        return StoredFolder(str(run_dir))
    return RunFolder(Path(run_dir))


def fetch_run(url: str, into: Path) -> Path:
    """Copy a service's records of a run, and its ranks' logs, into a folder, and return that.

    An `InputError` if there is no run; errors of the store as `store_errors`.
    """
    with store_errors(url):
        folder = StoredFolder(url)
        record = folder.record()
        if record is None:
            raise InputError(
                "there is no run",
                where={"url": url},
                hint="Name the run_dir of a job, as `distrain status JOB` prints it.",
            )
        names = [*record.files, *(log.name for log in folder.objects.find_all("logs/"))]
        for name in names:
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(folder.read(name))
    return into


def put_pictures(root: Path, url: str) -> None:
    """Put the curves and the report of a fetched run into the store.

    Another process that does the same at the moment may put its own instead.
    """
    objects, paths = Objects(url), RunPaths(root)
    for path in (paths.curves, paths.report):
        if not path.exists():
            continue
        content = path.read_bytes()
        with store_errors(url), suppress(Changed):
            try:
                version = objects.find(path.name).version
            except FileNotFoundError:
                objects.create(path.name, content)
            else:
                objects.replace(path.name, content, version)
