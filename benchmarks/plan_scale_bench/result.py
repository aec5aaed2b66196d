"""Predicted against measured: lines, figures and goals. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

WITHIN = 0.2
"""How far a prediction may be from what was measured, as a share of that."""


@dataclass(frozen=True)
class Case:
    """A number of ranks on links of a rate.

    Attributes:
        mbit: Of each link; 0 for a rank alone.
        predicted_s: Of a step, as `measured_s`.
        parts_s: The prediction's parts.
        phases_s: Where a rank spent the measured step.
        predicted_bytes: What a rank sends for the tables in a step, as `measured_bytes`.
    """

    ranks: int
    mbit: int
    predicted_s: float
    measured_s: float
    parts_s: Mapping[str, float]
    phases_s: Mapping[str, float]
    predicted_bytes: float
    measured_bytes: float

    @property
    def name(self) -> str:
        """What the case is called."""
        links = f" at {self.mbit} Mbit/s" if self.mbit else ""
        return f"{self.ranks} rank{'s' if self.ranks > 1 else ''}{links}"

    @property
    def off(self) -> float:
        """How far the prediction is off.

        >>> Case(2, 100, 0.12, 0.1, {}, {}, 0, 0).off
        0.2
        """
        return round(self.predicted_s / self.measured_s - 1, 4)


def table(cases: Sequence[Case]) -> list[str]:
    """Lines for people: a case, then its parts and phases."""
    lines = [f"{'':22}{'predicted':>12}{'measured':>12}{'off':>8}{'KB sent':>20}"]
    for case in cases:
        sent = f"{case.predicted_bytes / 1e3:,.0f} / {case.measured_bytes / 1e3:,.0f}"
        lines.append(
            f"{case.name:22}{1e3 * case.predicted_s:9.1f} ms{1e3 * case.measured_s:9.1f} ms"
            f"{100 * case.off:+7.0f}%{sent:>20}"
        )
    lines.append("")
    for case in cases:
        lines.append(f"{case.name:22}predicted: {_listed(case.parts_s)}")
        lines.append(f"{'':22}measured:  {_listed(case.phases_s)}")
    return lines


def _listed(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {1e3 * s:.1f}" for name, s in seconds.items() if s >= 5e-5)


def document(
    cases: Sequence[Case], machines: Mapping[str, Mapping[str, float]], **about: Any
) -> dict[str, Any]:
    """The last line."""
    return {
        "benchmark": "plan_scale",
        **about,
        "machines": machines,
        "figures": {case.name: asdict(case) | {"off": case.off} for case in cases},
        "goals": {"within": WITHIN},
        "met": {case.name: abs(case.off) <= WITHIN for case in cases},
    }
