"""The suite gives the same results however it was started."""

import runpy
import signal
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
ASKS = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"


def test_what_tests_start_hears_ctrl_c_where_the_suite_is_a_background_job() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        runpy.run_path(str(TESTS / "conftest.py"))
        told = subprocess.check_output([sys.executable, "-c", ASKS], text=True, timeout=60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert told == "True\n"
