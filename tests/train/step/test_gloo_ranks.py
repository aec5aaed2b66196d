"""The harness of real ranks: they test the distrain that the tests import."""

import subprocess
import sys

import pytest
from gloo_ranks import check_origin
from loaded_scripts import ORIGIN, SUPPORT, environment_of_ranks, origin


def test_what_the_tests_look_up_the_ranks_look_up_too(monkeypatch, tmp_path):
    (tmp_path / "only_here.py").write_text("WORD = 'here'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import gloo_ranks, only_here; gloo_ranks.check_origin(); print(only_here.WORD)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment_of_ranks(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.stdout == "here\n", done.stderr


def test_ranks_that_import_another_distrain_say_so(monkeypatch):
    monkeypatch.setenv(ORIGIN, "/elsewhere/distrain")
    with pytest.raises(RuntimeError, match="the tests from /elsewhere/distrain"):
        check_origin()
    monkeypatch.setenv(ORIGIN, str(origin()))
    check_origin()
    assert environment_of_ranks()["PYTHONPATH"].startswith(str(SUPPORT))
