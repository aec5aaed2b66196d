"""`distrain serve check`: checks whether a configuration works on this machine now."""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from distrain.diagnostics.check import Check, CheckVerdict
from distrain.diagnostics.doctor.machine import check_write_access
from distrain.errors import DistrainError, OutputError, Unavailable
from distrain.service.clusters.choosing import make_launcher
from distrain.service.clusters.kube_api import KubeRefused
from distrain.service.clusters.launcher import Scalable, SchedulerAddress
from distrain.service.clusters.scheduler_client import SchedulerClient
from distrain.service.decisions.wait_reasons import not_configured
from distrain.service.decisions.world import Refused
from distrain.service.settings import ClusterProfile, Settings
from distrain.service.store.engine import Database
from distrain.service.store.errors import NoTables
from distrain.service.store.store import Store, open_store
from distrain.storage.objects import Changed, Objects
from distrain.storage.outputs import check_place
from distrain.storage.retrying import first_line
from distrain.storage.urls import is_remote

MOST_SKEW_S = 2.0
LEAST_FREE_BYTES = 2**30
_OTHER_FOLDER = "Name another with --data-dir, or change owner or permissions."


def check_service(settings: Settings) -> list[Check]:
    """Check the files, the database, the run roots and the clusters of a configuration."""
    checks = [
        *_data_folder(settings),
        *(_private_file(name, path) for name, path in _secret_files(settings)),
    ]
    service_id = ""
    try:
        with open_store(settings, single=False) as store:
            service_id = store.service_id
            checks += _database(store)
            checks += _stranded(store, settings)
    except NoTables as error:  # before the first start
        checks.append(_failed("database", error, CheckVerdict.NOTE))
    except DistrainError as error:
        away = isinstance(error, Unavailable)
        checks.append(_failed("database", error, CheckVerdict.AWAY if away else CheckVerdict.FAIL))
    for name, profile in settings.clusters.items():
        checks.append(_run_root(name, settings.run_place(name)))
        checks += _roots(name, profile)
        checks.append(_cluster(name, profile, settings, service_id))
        checks += _scaled(name, settings)
    return checks


def exit_code(checks: list[Check]) -> int:
    """Return 1 if a check failed, otherwise 69 if a server did not answer, otherwise 0."""
    verdicts = {check.verdict for check in checks}
    if CheckVerdict.FAIL in verdicts:
        return 1
    return 69 if CheckVerdict.AWAY in verdicts else 0


def _failed(name: str, error: DistrainError, verdict: CheckVerdict = CheckVerdict.FAIL) -> Check:
    where = "; ".join(f"{key}: {value}" for key, value in error.where.items())
    detail = f"{error.message} ({where})" if where else error.message
    return Check(name, verdict, detail, error.hint or "")


def _data_folder(settings: Settings) -> Iterator[Check]:
    folder = settings.data_dir
    if not os.path.isdir(folder):  # False, too, if this user may not look
        try:
            check_place(folder)
        except OutputError as error:
            yield Check("data_dir", CheckVerdict.FAIL, f"{folder}: {error.message}", _OTHER_FOLDER)
        else:
            detail = f"{folder} is not there: the first start creates it"
            yield Check("data_dir", CheckVerdict.NOTE, detail)
        return
    free_bytes = shutil.disk_usage(folder).free
    failures: dict[str, object] = {
        "Change owner or permissions.": not os.access(folder, os.W_OK | os.X_OK)
        and f"{folder} cannot be written",
        f"chmod 700 {folder}": folder.stat().st_mode & 0o077 and f"other users can enter {folder}",
        "Free space.": free_bytes < LEAST_FREE_BYTES
        and f"{free_bytes >> 20} MiB are free in {folder}",
    }
    found = [(detail, mend) for mend, detail in failures.items() if detail]
    yield from (Check("data_dir", CheckVerdict.FAIL, str(detail), mend) for detail, mend in found)
    if not found:
        yield Check("data_dir", CheckVerdict.OK, str(folder))


def _secret_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    if settings.listen.tls.key_file:
        yield "listen.tls.key_file", settings.listen.tls.key_file
    for name, profile in settings.clusters.items():
        if profile.token_file:
            yield f"clusters.{name}.token_file", profile.token_file
        if profile.tls.key_file:
            yield f"clusters.{name}.tls.key_file", profile.tls.key_file


def _private_file(name: str, path: Path) -> Check:
    try:
        found = path.stat()
        with path.open("rb"):
            pass
    except OSError as error:
        return Check(name, CheckVerdict.FAIL, f"{path}: {error.strerror}", "Check path and owner.")
    # Kubernetes and packages provide secrets as files of root that the service's group may read.
    from_root = found.st_uid == 0 and os.geteuid() != 0
    if found.st_mode & (0o037 if from_root else 0o077):
        return Check(name, CheckVerdict.FAIL, f"other users can read {path}", f"chmod 600 {path}")
    return Check(name, CheckVerdict.OK, str(path))


def _database(store: Store) -> list[Check]:
    skew_s = store.now_s() - time.time()
    clock = (
        Check("clock", CheckVerdict.OK, "that of the database")
        if abs(skew_s) <= MOST_SKEW_S
        else Check(
            "clock",
            CheckVerdict.FAIL,
            f"the database's differs by {skew_s:+.1f} s",
            "Synchronise the clocks of both machines with NTP.",
        )
    )
    return [_tables(store.db), clock]


def _stranded(store: Store, settings: Settings) -> Iterator[Check]:
    hint = "Add it to serve.yaml again, or cancel the jobs: docs/operate.md, `Clusters`."
    for name, num_jobs in store.stranded_counts(settings.clusters).items():
        detail = f"{not_configured(name)}, and has {num_jobs} jobs that have not ended"
        yield Check(f"clusters.{name}", CheckVerdict.FAIL, detail, hint)


def _tables(db: Database) -> Check:
    if db.path is not None:
        with db.read() as connection:
            state = connection.exec_driver_sql("PRAGMA quick_check").scalar()
        if state != "ok":
            hint = "Stop the service, and put a backup back: docs/operate.md."
            return Check("database", CheckVerdict.FAIL, f"{db.where} is damaged: {state}", hint)
    return Check("database", CheckVerdict.OK, f"{db.where}, of this version")


def _run_root(cluster: str, place: str) -> Check:
    name = f"clusters.{cluster}.run_root"
    if is_remote(place):
        return _bucket(name, place)
    return check_write_access(Path(place), name)


def _roots(cluster: str, profile: ClusterProfile) -> Iterator[Check]:
    """Yield a note if job specs may name any path of the cluster's machines.

    There is none if the cluster runs on this machine.
    """
    if profile.allowed_roots or profile.is_started:
        return
    yield Check(
        f"clusters.{cluster}.allowed_roots",
        CheckVerdict.NOTE,
        "none: specs may name any path and URL that the workers' user can read",
        "Name the folders and URL prefixes of the data.",
    )


def _bucket(name: str, url: str) -> Check:
    """Check that the service can write below `url`, and that the store has conditional writes.

    Writes an object with a new name, and deletes it.
    """
    probe = f".distrain-check-{uuid.uuid4().hex}"
    hint = "Check the bucket, and the credentials in the service's environment (AWS_...)."
    try:
        objects = Objects(url)
        version = objects.create(probe, b"1")
        try:
            refused = [_refuses(lambda: objects.create(probe, b"2"))]
            objects.put(probe, b"3")
            refused.append(_refuses(lambda: objects.replace(probe, b"4", version)))
        finally:
            objects.delete(probe)
    except (OSError, DistrainError) as error:
        return Check(name, CheckVerdict.FAIL, f"{url}: {first_line(error)}", hint)
    if not all(refused):
        hint = "Use a store with conditional writes: If-None-Match and If-Match of PutObject."
        return Check(name, CheckVerdict.FAIL, f"{url}: the store ignores conditional writes", hint)
    return Check(name, CheckVerdict.OK, url)


def _refuses(write: Callable[[], object]) -> bool:
    try:
        write()
    except Changed:
        return True
    return False


def _cluster(name: str, profile: ClusterProfile, settings: Settings, service_id: str) -> Check:
    label = f"clusters.{name}"
    launcher = make_launcher(name, settings)
    try:
        found = launcher.find()
        if found is None:
            state = launcher.state()
            verdict = CheckVerdict.FAIL if state.phase == "failed" else CheckVerdict.NOTE
            detail = f"{state.phase}: {state.detail}" if state.detail else state.phase
            return Check(label, verdict, detail, "The service starts it.")
    except DistrainError as error:
        return _failed(label, error, CheckVerdict.AWAY)
    return _asked(label, profile, found, service_id)


def _scaled(name: str, settings: Settings) -> Iterator[Check]:
    launcher, label = make_launcher(name, settings), f"clusters.{name}.kubernetes"
    if not isinstance(launcher, Scalable):
        return
    try:
        launcher.check()
        state = launcher.state()
    except KubeRefused as error:
        may_pass = error.status == 429 or error.status >= 500
        yield _failed(label, error, CheckVerdict.AWAY if may_pass else CheckVerdict.FAIL)
    except DistrainError as error:
        yield _failed(label, error, CheckVerdict.AWAY)
    else:
        yield Check(label, CheckVerdict.OK, state.detail)


def _asked(label: str, profile: ClusterProfile, found: SchedulerAddress, service_id: str) -> Check:
    try:
        with SchedulerClient(found.url, found.token, profile.tls, service=service_id) as client:
            client.workers()
    except Refused as error:
        if error.status in (401, 403):
            mend = "token_file must contain the value of the scheduler's DISTRAIN_DASHBOARD_TOKEN."
            return Check(label, CheckVerdict.FAIL, f"{found.url} refuses the token", mend)
        if error.status == 404:
            mend = "Start it with `dask scheduler --preload distrain.preload`, of this version."
            return Check(label, CheckVerdict.FAIL, f"{found.url} has no routes for jobs", mend)
        return Check(label, CheckVerdict.AWAY, f"{found.url} answers {error.status}")
    except DistrainError as error:
        return _failed(label, error, CheckVerdict.AWAY)
    return Check(label, CheckVerdict.OK, found.url)
