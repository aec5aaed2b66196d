"""Reads the last line of a benchmark: its figures and their goals."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MET, MISSED, NOT_MEASURED, LEFT_OUT, TOLD = "met", "missed", "not measured", "left out", ""
PEERS = re.compile("merlin|torch_items|fbgemm|torchrec|_ranks_x_")
"""Names of figures that need other libraries, other Pythons or a second GPU.

If one of them is missing, it is left out; the run still counts as complete.
"""


@dataclass(frozen=True)
class Figure:
    """A figure of a benchmark.

    Attributes:
        name: Its name in the benchmark's JSON.
        value: A number; `None` if it was not measured.
        goal: The goal in words; `None` if there is none.
        status: `MET`, `MISSED`, `NOT_MEASURED`, `LEFT_OUT`, or `TOLD` without a goal.
    """

    name: str
    value: Any
    goal: str | None
    status: str


def last_line(stdout: str) -> dict[str, Any] | None:
    """Return the JSON object in the last line of a benchmark's output; `None` if there is none."""
    return json_object(stdout.strip().rpartition("\n")[2])


def json_object(text: str) -> dict[str, Any] | None:
    """Parse a JSON object; return `None` if the text is cut off or is not an object."""
    try:
        told = json.loads(text)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def figures_of(summary: Mapping[str, Any]) -> list[Figure]:
    """Return all figures of a last line.

    Benchmarks write `figures` in one of two forms: an object with value, goal and `met` for each
    name; or values by name, with separate `goals` by name and `missed` as the list of missed ones.
    """
    goals: Mapping[str, Any] = summary.get("goals") or {}
    named = summary.get("figures") or {}
    found = []
    for name in dict.fromkeys((*named, *goals)):
        entry = named.get(name, summary.get(name))
        if isinstance(entry, Mapping):
            goal = entry.get("goal", goals.get(name))
            found.append(figure(name, entry.get("value"), goal, entry.get("met")))
        else:
            met = name not in summary.get("missed", ())
            found.append(figure(name, entry, goals.get(name), met))
    return found


def figure(name: str, value: Any, goal: Any, met: Any) -> Figure:
    """Return a figure with its status."""
    if goal is None:
        status = TOLD
    elif value is None:
        status = LEFT_OUT if PEERS.search(name) else NOT_MEASURED
    else:
        status = MET if met else MISSED
    return Figure(name, value, None if goal is None else str(goal), status)


def merged(parts: Iterable[Iterable[Figure]]) -> list[Figure]:
    """Merge the figures of a benchmark that ran in parts, each of which lists all names.

    The part that measured a figure counts. If several parts did, one that misses its goal counts.
    """
    best: dict[str, Figure] = {}
    for part in parts:
        for each in part:
            known = best.get(each.name)
            if known is None or rank(each) > rank(known):
                best[each.name] = each
    return list(best.values())


def rank(each: Figure) -> int:
    """Return the precedence among figures of one name: missed, then measured, then not measured."""
    if each.value is None:
        return 0
    return 2 if each.status == MISSED else 1
