"""Examples as processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_example(script: str, *words: object, **environment: str) -> str:
    """Run an example to its end, and return what it printed."""
    ran = subprocess.run(
        [sys.executable, EXAMPLES / script, *map(str, words)],
        # Threads of torch that wait for a core that others use wait long.
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=580,  # some train for two minutes where the machine is shared
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
