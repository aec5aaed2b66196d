"""Run directories wherever they lie: opened for reading, or fetched as a whole."""

from contextlib import suppress
from pathlib import Path

from distrain.errors import InputError
from distrain.run_paths import RunPaths
from distrain.runs.run_folder import RunFolder
from distrain.runs.stored.folder import StoredFolder
from distrain.runs.stored.publishing import store_errors
from distrain.storage import Changed, Objects, is_remote


def open_run_folder(run_dir: str | Path) -> RunFolder | StoredFolder:
    """A run directory, by its path or URL.

    Raises:
        NotInRun: There is no such folder on this machine.
        OSError: It cannot be opened.
    """
    if is_remote(run_dir):
        return StoredFolder(str(run_dir))
    return RunFolder(Path(run_dir))


def fetch_run(url: str, into: Path) -> Path:
    """Copy what a service recorded of a run, and its ranks' logs, into a folder; returns that.

    Raises:
        InputError: There is no run.
        OutputError, Unavailable: The store cannot be read.
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
        names = [*record.files, *(found.name for found in folder.objects.find_all("logs/"))]
        for name in names:
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(folder.read(name))
    return into


def put_pictures(root: Path, url: str) -> None:
    """Put the curves and the report of a fetched run beside it.

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
