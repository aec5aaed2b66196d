"""Functions of tests that run on real gloo ranks.

A scenario is a function of a file beside its test. It takes the rank, the number of ranks and some
arguments, and runs in a process of each rank, in torch's default process group. It returns what
`torch.load` reads without code. The gang of each size lives as long as the test process and runs
all scenarios of that size, one after the other, so a scenario undoes what it patches.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from loaded_scripts import ask

SLACK_S = 60.0
"""What the server has for starting a gang and ending one that hangs."""


def on_ranks(
    num_ranks: int, scenario: Callable[..., object], *arguments: object, timeout_s: float = 240.0
) -> list[Any]:
    """Return what a scenario computes on each rank.

    Args:
        arguments: Values that JSON has; paths arrive as strings.
        timeout_s: How long the scenario may take.

    Raises:
        AssertionError: It failed on a rank or hangs, with that rank's traceback. The next scenario
            has new ranks.
    """
    with TemporaryDirectory() as folder:
        request = {
            "kind": "scenario",
            "num_ranks": num_ranks,
            "timeout_s": timeout_s,
            "file": inspect.getfile(scenario),
            "name": scenario.__name__,
            "arguments": arguments,
            "folder": folder,
        }
        if trouble := ask(request, timeout_s + SLACK_S):
            output = Path(folder, "output")
            printed = output.read_text() if output.exists() else ""
            raise AssertionError(f"{scenario.__name__}: {trouble}\n{printed[-10_000:]}")
        files = [Path(folder, f"{rank}.pt") for rank in range(num_ranks)]
        return [torch.load(file, weights_only=True) for file in files]
