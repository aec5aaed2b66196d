import subprocess
import sys

import pytest

CODE = """
import resource, sys
from distrain.prep.synthetic.generate import SynthRequest, generate
generate(SynthRequest(sys.argv[1], int(sys.argv[2])))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_kib(out, chunks):
    command = [sys.executable, "-c", CODE, str(out), str(chunks * 65_536)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    few, many = peak_kib(tmp_path / "few", 2), peak_kib(tmp_path / "many", 8)
    # Six more chunks hold about 200 MiB of features and 100 MiB of text.
    assert many - few < 60 * 1024
