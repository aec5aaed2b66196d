"""Run directories wherever they lie: opened for reading, or fetched as a whole."""

from contextlib import suppress
from pathlib import Path

from distrain.errors import InputError
from distrain.run_paths import RunPaths
from distrain.runs.run_folder import RunFolder
from distrain.runs.stored.folder import StoredFolder, store_errors
from distrain.storage import Changed, Objects, is_remote


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
