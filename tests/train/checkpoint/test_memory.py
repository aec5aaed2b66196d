"""Runs `memory_use.py` in a process of its own, whose peak is nobody else's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_tables_are_held_twice_only_where_training_goes_on_meanwhile(memory_folder):
    script = Path(__file__).with_name("memory_use.py")
    ran = subprocess.run(
        [sys.executable, script, memory_folder],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    rises = json.loads(ran.stdout)
    assert rises["load_model"] > 0.9, "the tables themselves are in it"
    assert rises["load_model"] < 1.3
    for name in ("save_model", "save_straight", "load"):
        assert rises[name] < 0.3, name
    assert 0.9 < rises["save_behind"] < 1.3, "one copy"
    assert 0.99 < rises["buffer"] < 1.01
    assert rises["save_behind_again"] < 0.1, "the same copy"
