"""The last line of a benchmark: its figures beside their goals."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MET, MISSED, NOT_MEASURED, LEFT_OUT, TOLD = "met", "missed", "not measured", "left out", ""
PEERS = re.compile("merlin|torch_items|fbgemm|torchrec|_ranks_x_")
"""Figures that need other libraries, other Pythons or a second GPU; where such a one is missing,
that is no gap of this run."""


@dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        name: As the benchmark calls it.
        value: A number; `None` if it was not measured.
        goal: In words; `None` if there is none.
        status: `MET`, `MISSED`, `NOT_MEASURED`, `LEFT_OUT`, or `TOLD` without a goal.
    """

    name: str
    value: Any
    goal: str | None
    status: str


def last_line(stdout: str) -> dict[str, Any] | None:
    """The JSON object that a benchmark ends with; `None` if there is none."""
    return json_object(stdout.strip().rpartition("\n")[2])


def json_object(text: str) -> dict[str, Any] | None:
    """What a text says in JSON; `None` if it is no object, or cut off."""
    try:
        told = json.loads(text)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def figures_of(summary: Mapping[str, Any]) -> list[Figure]:
    """All figures of a last line.

    Benchmarks write either `figures` with a value, a goal and `met` each, or values by name beside
    `goals` by name, with `missed` naming those that are not met.
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
    """Judge one."""
    if goal is None:
        status = TOLD
    elif value is None:
        status = LEFT_OUT if PEERS.search(name) else NOT_MEASURED
    else:
        status = MET if met else MISSED
    return Figure(name, value, None if goal is None else str(goal), status)


def merged(parts: Iterable[Iterable[Figure]]) -> list[Figure]:
    """The figures of a benchmark that was run in parts, each of which knows all names.

    The part that measured a figure counts; where several did, one that misses its goal.
    """
    best: dict[str, Figure] = {}
    for part in parts:
        for each in part:
            known = best.get(each.name)
            if known is None or rank(each) > rank(known):
                best[each.name] = each
    return list(best.values())


def rank(each: Figure) -> int:
    """What counts among figures of one name."""
    if each.value is None:
        return 0
    return 2 if each.status == MISSED else 1
