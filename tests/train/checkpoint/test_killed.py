"""A process that is killed at any moment while it writes leaves whole checkpoints only."""

import json
import signal
from pathlib import Path

from loaded_scripts import run_script

SCRIPT = Path(__file__).with_name("killed_writers.py")


def test_only_whole_checkpoints_are_left(memory_folder):
    ran = run_script(SCRIPT, memory_folder)
    assert ran.returncode == 0, ran.stderr
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(found) == 8
    assert sum(one["exit"] == -signal.SIGKILL for one in found) > 5
    newest = set()
    for one in found:
        assert all(whole for _, whole in one["found"]), one
        steps = [step for step, _ in one["found"]]
        assert steps == sorted(steps, reverse=True), one
        assert len(steps) <= 3, one
        newest.add(steps[0] if steps else 0)
        assert one["left"] == one["listed"], "the next attempt tidies up"
        assert one["listed"][-1] == "step-0000000009-a2"
    assert newest == {0, 1, 2, 3}, "they died early and late"
