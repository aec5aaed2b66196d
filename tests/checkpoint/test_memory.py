"""Runs `memory_use.py` in a process of its own, whose peak is nobody else's."""

import json
import subprocess
import sys
from pathlib import Path


def test_tables_are_never_held_twice(tmp_path):
    script = Path(__file__).with_name("memory_use.py")
    ran = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, timeout=250, check=False
    )
    assert ran.returncode == 0, ran.stderr
    rises = json.loads(ran.stdout)
    assert rises["load_model"] > 0.9, "the tables themselves are in it"
    assert rises["load_model"] < 1.3
    for name in ("save_model", "save_state", "load_state"):
        assert rises[name] < 0.3, name
