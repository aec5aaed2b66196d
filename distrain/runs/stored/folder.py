"""Reads a run folder in an object store.

A growing file, such as a log or an attempt's records, consists of an object with its beginning and
objects with later parts, named by the number of their first byte (`distrain.runs.log_bytes`).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from distrain.errors import InputError, OutputError, Unavailable
from distrain.jobs.run_paths import RunPaths, attempts_of
from distrain.runs.log_bytes import read_bytes
from distrain.runs.run_folder import DescriptorReader, FileInRun, NotInRun, RunFolder, parts_of
from distrain.storage.objects import Objects
from distrain.storage.retrying import first_line, is_transient
from distrain.storage.urls import is_remote

_HINT = "Check the bucket, the credentials of the service, and that its server answers."


class StoredFolder(AbstractContextManager["StoredFolder"]):
    """A run folder in an object store, with the interface of `RunFolder`."""

    def __init__(self, url: str):
        self.objects = Objects(url)
        self.place = self.objects.url

    def __exit__(self, *_: object) -> None: ...

    def open(self, name: str) -> "ObjectReader":
        name = "/".join(parts_of(name))
        try:
            item = self.objects.find(name)
        except FileNotFoundError as error:
            raise NotInRun(name) from error
        etag = f'"{item.version.strip(chr(34))}"'
        return ObjectReader(self.objects, name, item.size_bytes, item.modified_s, etag)

    def read_growing(self, name: str, offset: int, limit: int) -> bytes:
        """Read up to `limit` bytes from `offset`; b"" at the end, or if the file does not exist."""
        folder, _, last = name.rpartition("/")
        files = StoredLogFiles(self.objects, f"{folder}/" if folder else "", last)
        return read_bytes(files, last, offset, limit)

    def attempts(self) -> tuple[int, ...]:
        """Return the numbers of attempts with records, logs or audit files, oldest first."""
        records = (file.name.rpartition("/")[2] for file in self.objects.find_all("records/"))
        folders = (*self.objects.folders("logs/"), *self.objects.folders("audit/"))
        return attempts_of([*records, *folders])

    def files(self, below: str = "", after: str = "") -> Iterator[FileInRun]:
        """Yield files in name order; the arguments are those of `RunFolder.files`.

        Raises `NotInRun` if there is no folder `below`, but not with `after`.
        """
        prefix = "/".join(parts_of(below)) + "/" if below else ""
        empty = True
        for item in self.objects.find_all(prefix, after):
            empty = False
            yield FileInRun(item.name, item.size_bytes, item.modified_s)
        if empty and prefix and not after:
            raise NotInRun(below)


@dataclass(frozen=True)
class ObjectReader:
    """An object of a run folder, with the interface of `DescriptorReader`."""

    objects: Objects
    name: str
    size_bytes: int
    modified_s: float
    etag: str

    def pread(self, num_bytes: int, first: int) -> bytes:
        return self.objects.read_range(self.name, first, min(num_bytes, self.size_bytes - first))

    def close(self) -> None: ...


class StoredLogFiles:
    def __init__(self, objects: Objects, prefix: str, log_name: str):
        self._objects, self._prefix, self._log_name = objects, prefix, log_name

    def sizes(self) -> dict[str, int]:
        items = self._objects.find_all(self._prefix + self._log_name)
        return {item.name.removeprefix(self._prefix): item.size_bytes for item in items}

    def read(self, name: str, first: int, num_bytes: int) -> bytes:
        return self._objects.read_range(self._prefix + name, first, num_bytes)


OpenRunFolder = RunFolder | StoredFolder
RunFileReader = DescriptorReader | ObjectReader


@contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Context manager that converts an `OSError` of a store in the block.

    It becomes `Unavailable` if it is transient, otherwise `OutputError`.
    """
    try:
        yield
    except OSError as error:
        transient = is_transient(error)
        kind = Unavailable if transient else OutputError
        text = f"the object store {'does not answer' if transient else 'refuses'}"
        raise kind(f"{text}: {first_line(error)}", where={"url": url}, hint=_HINT) from error


def open_run_folder(run_dir: str | Path, guarded: int = 1) -> OpenRunFolder:
    """Open a run folder by path or URL; raises `NotInRun` if there is no folder at the path.

    None of the last `guarded` parts of a path may be a link. Whether there is a run at a URL is not
    checked.
    """
    if is_remote(run_dir):
        return StoredFolder(str(run_dir))
    return RunFolder(Path(run_dir), guarded)


def open_job_folder(run_dir: str) -> OpenRunFolder:
    """Open the run folder of a service's job, which is `RUN_ROOT/PROJECT/JOB`.

    Jobs' code can replace the folders below the run root by links, so these are not followed.
    """
    return open_run_folder(run_dir, guarded=2)


def open_own_run(paths: RunPaths) -> OpenRunFolder:
    """Open a run folder that the user of this process named; it may be a link.

    Raises `NotInRun` if there is no folder at a path.
    """
    return open_run_folder(paths.store or paths.root.resolve())


def fetch_run(url: str, into: Path) -> Path:
    """Copy a run's `run.json`, spec, summary, records and logs from a store; return `into`.

    Raises `InputError` if there is no run, and `Unavailable` or `OutputError` for the store's
    errors.
    """
    paths = RunPaths(into)
    with store_errors(url):
        objects = Objects(url)
        files = [*objects.find_all("records/"), *objects.find_all("logs/")]
        names = [path.name for path in (paths.run, paths.spec, paths.summary)]
        for name in [*names, *(file.name for file in files)]:
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.write_bytes(objects.read(name)[0])
            except FileNotFoundError:
                continue
    if not paths.run.exists():
        raise InputError(
            "there is no run",
            where={"url": url},
            hint="Name the run_dir of a job, as `distrain status JOB` prints it.",
        )
    return into


def upload_images(root: Path, url: str) -> None:
    """Upload `curves.png` and `report.html`, if they exist in `root`, to the run at `url`."""
    paths = RunPaths(root)
    with store_errors(url):
        for path in (paths.curves, paths.report):
            if path.exists():
                Objects(url).put(path.name, path.read_bytes())
