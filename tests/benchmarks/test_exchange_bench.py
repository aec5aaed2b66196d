"""What real ranks send in a step, counted in their process groups, on 2 to 16 ranks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import exchange as bench

SCRIPT = Path(bench.__file__)


@pytest.fixture(scope="module")
def told():
    """The benchmark's figures for tables of both placements."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "--quick", "--placements", "mixed"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_ranks_messages_do_not_grow_with_the_number_of_ranks(told):
    sizes = told["figures"]["mixed"]
    assert [of["num_ranks"] for of in sizes] == [2, 4, 8, 16]
    for of in sizes:
        # Two stores: rows' sums of both, row-wise rows; dense gradients. Counts and ids of both.
        assert of["messages"] == [4, 4]
    assert told["met"]["messages_grow"]


@pytest.mark.slow
def test_no_bytes_grow_with_the_square_of_the_ranks(told):
    for of in told["figures"]["mixed"]:
        # A count of 8 bytes for each of 26 columns and each peer.
        assert of["empty_bytes"] - of["dense_bytes"] == 8 * 26 * (of["num_ranks"] - 1)
    assert told["growth"]["mixed"]["square_bytes"] <= 1024
    assert told["met"]["square_bytes"]


@pytest.mark.slow
def test_a_routes_traffic_says_what_was_sent(told):
    for of in told["figures"]["mixed"]:
        assert of["untold_bytes"] == 0
        assert of["sent_bytes"] > of["empty_bytes"] > of["dense_bytes"]


def sizes_with(counts_bytes, messages=(2, 2)):
    """Figures of gangs whose ranks send such counts."""
    return [
        {
            "num_ranks": ranks,
            "messages": messages if isinstance(messages, tuple) else messages(ranks),
            "dense_bytes": 5_000,
            "empty_bytes": 5_000 + counts_bytes(ranks),
            "untold_bytes": 0,
            "route_ms": 1.0 + ranks,
            "step_ms": 2.0,
        }
        for ranks in (2, 4, 8, 16)
    ]


@pytest.mark.parametrize(
    ("sizes", "missed"),
    [
        (sizes_with(lambda ranks: 208 * (ranks - 1)), []),
        (sizes_with(lambda ranks: 208 * ranks * (ranks - 1)), ["square_bytes"]),
        (sizes_with(lambda ranks: 0, lambda ranks: (ranks, 2)), ["messages_grow"]),
    ],
    ids=["linear", "square", "a message a peer"],
)
def test_what_grows_misses_its_goal(sizes, missed):
    grown = bench.growth(sizes)
    assert grown["host_ms_per_peer"] == 1.0
    met = bench.goals({"mixed": sizes}, {"mixed": grown})
    assert [name for name, reached in met.items() if not reached] == missed
