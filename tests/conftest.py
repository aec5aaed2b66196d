"""What every test shares."""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from wording import GoldenMessages, Wording, is_alone

if TYPE_CHECKING:
    from real_postgres import Postgres

# A shell's background job ignores Ctrl-C, and so would every process that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A fifth of the tests' time would be spent on waiting until a disk has what they wrote.
MEMORY = Path("/dev/shm")
if (
    os.access(MEMORY, os.W_OK)
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC  # tests write programs, too
    and shutil.disk_usage(MEMORY).free > 4 * 2**30
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# In Python before 3.11.9, asking for all threads' frames can stop a process for ever
# (CPython issue 106883), and Dask's profiler of workers asks a hundred times a second.
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "False")

# How long an example takes says how busy the machine is.
settings.register_profile(
    "any machine",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

TESTS = Path(__file__).resolve().parent
SHARED_DATA = TESTS.parents[1] / "shared" / "data"
CHOSEN_MARKS = ("slow", "release")  # marks of a GPU come from helpers, too
SLOW = "slow and not release"  # what `make test-slow` runs
HAS_GPU = Path("/dev/nvidiactl").exists()
# What takes minutes with `-m slow`. It begins first, for one of these at the end would run alone.
LONGEST = (
    "deploy/slurm/test_real_slurm.py",
    "models/export/test_export.py",
    "end_to_end/test_planted_auc.py",
    "end_to_end/test_restarts.py",
    "end_to_end/test_lost_clusters.py",
    "examples/test_criteo_examples.py",
    "service/process/test_cluster_lives.py",
    "service/process/test_serve_processes.py",
    "deploy/node/test_node_runs.py",
    "docs/test_docs_service.py",
    "docs/test_docs_notebook.py",
    "docs/test_docs_examples.py",
    "predict/test_served.py",
    "browser/test_training_page.py",
)


def spells(file: Path, mark: str) -> bool:
    """Whether a file of tests, or its folder's conftest.py, spells a mark."""
    files = {file} if file.parent == TESTS else {file, file.with_name("conftest.py")}
    return any(f"mark.{mark}" in one.read_text() for one in files if one.exists())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """No helper without doctests is imported and, with `-m slow`, no file without a slow test.

    To import all files takes a minute.
    """
    if collection_path == TESTS / "gpu" and not HAS_GPU:
        return True
    is_helper = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    if is_helper and ">>>" not in collection_path.read_text():
        return True
    wanted = config.option.markexpr
    wanted = "slow" if wanted == SLOW else wanted
    if wanted not in CHOSEN_MARKS or collection_path.suffix != ".py":
        return None
    return None if spells(collection_path, wanted) else True


@pytest.hookimpl(trylast=True)  # after the folders' own, which add marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What `pytest_ignore_collect` would not find is an error here; the longest come first."""
    marked = {(item.path, m.name) for item in items for m in item.iter_markers()}
    for file, mark in marked:
        if mark in CHOSEN_MARKS and not spells(file, mark):
            raise pytest.UsageError(
                f"{file}: `-m {mark}` would miss it: write `pytest.mark.{mark}`"
            )
    if config.option.markexpr in ("slow", SLOW):
        places = {TESTS / name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """Limit torch to one thread in processes of tests, which share the cores; hide what is loaded.

    Torch's second thread mostly spins until it is its turn again: some tests took six times the
    processor time. The garbage collector would visit modules and collected tests, a million
    objects, again in every full collection.
    """
    gc.collect()
    gc.freeze()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden files of messages")


def pytest_report_header() -> str | None:
    return None if HAS_GPU else "tests/gpu: not collected, since there is no NVIDIA GPU"


@pytest.fixture(scope="session")
def golden_messages(request: pytest.FixtureRequest) -> "Iterator[dict[Path, GoldenMessages]]":
    """The golden files that this run has read, by folder; written at its end with `--update`."""
    update = request.config.getoption("--update")
    if update and not is_alone():
        raise pytest.UsageError("--update writes files of whole folders: run with JOBS=0")
    files: dict[Path, GoldenMessages] = {}
    yield files
    for golden in files.values():
        golden.save()


@pytest.fixture
def wording(
    request: pytest.FixtureRequest,
    golden_messages: dict[Path, GoldenMessages],
    tmp_path_factory: pytest.TempPathFactory,
) -> Wording:
    """Compares the text of an error with the golden file of the folder (`support/wording.py`)."""
    folder = TESTS / request.path.relative_to(TESTS).parts[0]
    if folder not in golden_messages:
        update = request.config.getoption("--update")
        golden_messages[folder] = GoldenMessages(folder / "messages.txt", update)
    replaced = {str(TESTS.parent): "CHECKOUT"}
    if "tmp_path" in request.fixturenames:
        replaced = {str(request.getfixturevalue("tmp_path")): "TMP", **replaced}
    replaced[str(tmp_path_factory.getbasetemp())] = "TMP"
    test = f"{request.path.relative_to(folder)}::{request.node.name}"
    return Wording(golden_messages[folder], test, replaced)


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data beside the checkout; its licence forbids copies in the project."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the real data sets are not here: no {SHARED_DATA.name}/ beside the checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small prepared data; tests only read it."""
    from small_jobs import write_prepared

    return write_prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Runs leave no `curves.png`, which takes twice as long to draw as they train."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distrain.launch.run._draw", lambda *_: None)
        yield


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Postgres]":
    """A PostgreSQL that runs; `new_database()` gives each test its own. Who kills one starts it."""
    real_postgres = pytest.importorskip("real_postgres", reason="psycopg is not installed")
    if reason := real_postgres.why_absent():
        pytest.skip(reason)
    with real_postgres.Postgres() as server:
        yield server
