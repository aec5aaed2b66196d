"""The states of all targets of a job, by name, as one state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distrain.metrics.binary import BinaryMetrics
from distrain.metrics.multiclass import MulticlassMetrics
from distrain.metrics.regression import RegressionMetrics
from distrain.metrics.state import State

STATES: Mapping[str, type[State]] = {
    kind.kind: kind for kind in (BinaryMetrics, RegressionMetrics, MulticlassMetrics)
}
"""The class of a target's state, by the target's kind."""

_FORMAT = {"kind": "targets", "version": 1}


class TargetMetrics:
    """States of targets by name, all of the same rows.

    The first binary target is the main one, whose metrics are those of the job. A job with only
    that target is serialised as its state, without a name.

    >>> metrics = TargetMetrics({"click": BinaryMetrics(), "price": RegressionMetrics()})
    >>> metrics.main is metrics.states["click"], list(metrics.figures())
    (True, ['price'])
    """

    def __init__(self, states: Mapping[str, State]):
        self.states = dict(states)

    @property
    def main_name(self) -> str | None:
        """The first binary target's name; `None` if there is none."""
        binary = (name for name, one in self.states.items() if isinstance(one, BinaryMetrics))
        return next(binary, None)

    @property
    def main(self) -> BinaryMetrics | None:
        name = self.main_name
        state = None if name is None else self.states[name]
        return state if isinstance(state, BinaryMetrics) else None

    @property
    def rows(self) -> int:
        return next((state.rows for state in self.states.values()), 0)

    def figures(self) -> dict[str, dict[str, float | None]]:
        """Return the metrics of each target except the main one: by target, then by metric."""
        main = self.main_name
        others = ((name, state) for name, state in self.states.items() if name != main)
        return {name: state.compute().figures() for name, state in others}

    def merge(self, other: TargetMetrics) -> TargetMetrics:
        """Return states with the rows of both.

        Raises `ValueError` if their targets differ, unless one of them has no targets. If both have
        a single target, its name may differ.
        """
        if not self.states or not other.states:
            return other if other.states else self
        mine = self.states
        if len(mine) == len(other.states) == 1:  # a single target is serialised without its name
            mine = dict(zip(other.states, mine.values(), strict=True))
        if mine.keys() != other.states.keys():
            raise ValueError("states of other targets cannot be merged")
        return TargetMetrics({name: mine[name].merge(other.states[name]) for name in mine})

    def to_json(self) -> dict[str, Any]:
        """Return the states as JSON values; for a single binary target those of its state."""
        if len(self.states) == 1 and self.main is not None:
            return self.main.to_json()
        targets = {name: state.to_json() for name, state in self.states.items()}
        return {**_FORMAT, "targets": targets}

    @classmethod
    def from_json(cls, *documents: Mapping[str, Any]) -> TargetMetrics:
        """Return the states of documents from `to_json`, with the rows of all, in their order.

        A document without targets counts no rows.

        Raises:
            ValueError: A document is damaged, has another kind or version, or other targets than
                the first.
        """
        of_all = [targets for targets in map(_targets_of, documents) if targets]
        names = list(of_all[0]) if of_all else []
        if any(set(targets) != set(names) for targets in of_all):
            raise ValueError("states of other targets cannot be merged")
        return cls({name: _read([targets[name] for targets in of_all]) for name in names})


def _targets_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    if document.get("kind") != _FORMAT["kind"]:
        return {"": document}
    targets = document.get("targets")
    if document.get("version") != _FORMAT["version"] or not isinstance(targets, Mapping):
        raise ValueError(f"not states of targets: version is {document.get('version')!r}")
    return targets


def _read(documents: Sequence[Mapping[str, Any]]) -> State:
    kind = STATES.get(str(documents[0].get("kind")), BinaryMetrics)
    return kind.from_json(*documents)
