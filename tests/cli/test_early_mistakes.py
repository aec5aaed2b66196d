"""A mistyped path or override is told before torch is loaded, which takes seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small_jobs import small_document, write_prepared

# Each is run in one process, which must not have loaded torch after any of them.
COMMANDS = {
    "evaluate": "evaluate nope data",
    "evaluate, data": "evaluate model nope",
    "evaluate, model lacks files": "evaluate data data",
    "predict": "predict nope data --out out",
    "predict, data": "predict model nope --out out",
    "predict, out": "predict model data --out data",
    "export": "export nope out",
    "export, out": "export model data",
    "pack": "pack nope out",
    "pack, schema": "pack data out --schema nope.pbtxt",
    "pack, out": "pack data data",
    "plan": "plan nope.yaml",
    "plan, data": "plan job.yaml --set data.train=nope",
    "plan, override": "plan job.yaml --set train.epochs=many",
    "train": "train nope.yaml",
    "train, data": "train job.yaml --set data.valid=nope --dry-run",
    "train, schema": "train job.yaml --set data.schema=nope",
    "train, override": "train job.yaml --set nope=1",
    "train, resumed": "train --resume nope",
    "report": "report nope",
    "compare": "compare nope nope",
    "logs": "logs nope",
    "audit": "audit nope",
}

SCRIPT = """
import json, sys
from distrain.cli.main import main
told = {}
for name, words in json.load(sys.stdin).items():
    try:
        main(words.split())
    except SystemExit as ended:
        told[name] = [ended.code, "torch" in sys.modules]
    if "torch" in sys.modules:
        break
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a job on them, and a folder that has the names of a saved model's files."""
    root = tmp_path_factory.mktemp("early")
    document = small_document(write_prepared(root / "prepared"))
    (root / "job.yaml").write_text(yaml.safe_dump(document))
    (root / "data").symlink_to(root / "prepared" / "train")
    (root / "model").mkdir()
    for name in ("model.json", "weights.safetensors"):
        (root / "model" / name).write_text("{}")
    return root


def test_mistyped_paths_and_overrides_are_told_before_torch_is_loaded(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(COMMANDS),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {name: [1, False] for name in COMMANDS}, done.stderr
    assert done.stderr.count("error: ") == len(COMMANDS)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("broken", ["dask's settings", "no home", "no tenacity"])
def test_what_surrounds_a_command_is_a_mistake_too(
    folder: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "dask.yaml").write_text("distributed: [1")
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    if broken == "no home":
        # Python asks the system for the home of a user whose HOME is not set; this one has none.
        (folder / "sitecustomize.py").write_text("import pwd; pwd.getpwuid = {}.__getitem__")
        words, more = "submit job.yaml", {"PYTHONPATH": str(folder)}
    elif broken == "no tenacity":
        (folder / "sitecustomize.py").write_text("import sys; sys.modules['tenacity'] = None")
        server = "--server http://127.0.0.1:1"
        words, more = f"jobs {server}", {"PYTHONPATH": str(folder), "HOME": str(folder)}
    else:
        words, more = "doctor", {"HOME": str(folder), "DASK_CONFIG": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "distrain", *words.split()],
        cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    named = {"no home": "HOME", "no tenacity": "tenacity"}
    assert named.get(broken, str(folder / "dask.yaml")) in done.stderr
