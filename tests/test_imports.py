"""What an import loads: the heavy libraries only where they are used."""

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[1])
FRAMEWORKS = {"torch", "dask", "distributed", "pandas", "cudf"}
HEAVY = FRAMEWORKS | {"pyarrow", "numpy"}


def loaded_by(code):
    """The top-level modules that a fresh interpreter holds after some code."""
    tell = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tell}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_package_itself_is_light():
    slow = {"email", "hashlib", "importlib.metadata", "json", "pathlib", "subprocess"}
    tell = "import sys, distrain\nprint(*(sys.modules.keys() & SLOW))".replace("SLOW", repr(slow))
    bare = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {ROOT!r})\n{tell}"]
    done = subprocess.run(bare, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"pathlib"}
    assert not loaded_by("import distrain") & HEAVY


PURE_PACKAGES = [
    "distrain.jobs.spec",
    "distrain.jobs.events",
    "distrain.schema",
    "distrain.loader.partition",
    "distrain.metrics",
    "distrain.jobs",
    "distrain.runs.records",
    "distrain.scheduler.lifecycle",
    "distrain.scheduler.history",
    "distrain.runs",
    "distrain.jobs.reasons",
    "distrain.workers",
    "distrain.jobs.run_paths",
    "distrain.storage",
    "distrain.client",
]


def test_the_pure_packages_load_no_framework():
    # One interpreter for all: what any of them loads, it has loaded.
    loaded = loaded_by(f"import {', '.join(PURE_PACKAGES)}")
    assert not loaded & FRAMEWORKS


def test_schemas_folders_and_commands_load_no_numpy():
    assert (
        not loaded_by("import distrain.schema, distrain.storage, distrain.cli.data.synth") & HEAVY
    )


def test_the_client_of_a_service_loads_nothing_of_the_service():
    servers = {"sqlalchemy", "fastapi", "starlette", "uvicorn", "alembic"}
    loaded = loaded_by("from distrain.client import *; Client('http://127.0.0.1:1')")
    assert "httpx2" in loaded
    assert not loaded & (HEAVY | servers)


def test_help_loads_no_framework():
    code = (
        "from distrain.cli.main import main\n"
        "for words in (['--help'], ['submit', '--help']):\n"
        "    try:\n        main(words)\n"
        "    except SystemExit as end:\n        assert end.code == 0\n"
    )
    assert not loaded_by(code) & (FRAMEWORKS | {"httpx2"})


def test_names_of_the_package_resolve_on_first_use():
    code = (
        "import distrain\n"
        "assert set(distrain.__all__) <= set(dir(distrain))\n"
        "for name in set(distrain.__all__) - {'Dataset', 'Loader'}:\n    getattr(distrain, name)\n"
        "try:\n    distrain.nonsense\n"
        "except AttributeError as error:\n    assert 'nonsense' in str(error)\n"
        "else:\n    raise SystemExit('no error')\n"
    )
    assert not loaded_by(code) & FRAMEWORKS


def test_the_loader_brings_torch_but_no_cluster():
    loaded = loaded_by("import distrain\ndistrain.Dataset, distrain.Loader")
    assert loaded & FRAMEWORKS == {"torch"}


def test_no_process_of_ours_imports_from_the_current_folder(tmp_path):
    # Who may write there could run code as the user: a module named like one of Python's is enough.
    (tmp_path / "statistics.py").write_text("print('from the current folder')")
    starts = [
        (path.name, line.strip())
        for path in Path(ROOT, "distrain").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"sys\.executable, ", line)
    ]
    assert starts
    assert [start for start in starts if 'sys.executable, "-P", ' not in start[1]] == []
    # Dask's workers are children that `multiprocessing` starts with the command's environment.
    child = (
        "import multiprocessing, statistics\n"
        "if __name__ == '__main__':\n"
        "    multiprocessing.get_context('spawn').Process(target=print).start()\n"
    )
    command = (
        "import click, subprocess, sys\n"
        "from distrain.cli import main\n"
        "main.cli.callback = lambda: None\n"
        f"start = lambda: subprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
        "main.LazyGroup.get_command = lambda *_: click.Command('start', callback=start)\n"
        "sys.argv = ['distrain', 'demo']\n"
        "main.main()\n"
    )
    bare = [sys.executable, "-I", "-c", command]
    done = subprocess.run(bare, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "package", ["distrain", "distrain.loader", "distrain.models", "distrain.prep"]
)
def test_no_module_has_the_name_of_what_its_package_exports(package):
    # The import of such a module would replace the exported object in its package.
    found = importlib.import_module(package)
    modules = {module.name for module in pkgutil.iter_modules(found.__path__)}
    assert not modules & found._MODULES.keys()
