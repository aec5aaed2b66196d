"""What is wrong with a cluster, where, and how to mend it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from distrain.doctor.facts import ProcessPlace


class Severity(StrEnum):
    MISTAKE = "mistake"  # jobs fail, or will not do what was asked
    WARNING = "warning"  # jobs run, and somebody should know


@dataclass(frozen=True)
class Finding:
    severity: Severity
    check: str
    places: tuple[ProcessPlace, ...]
    fact: str
    mend: str


def mistake(check: str, places: tuple[ProcessPlace, ...], fact: str, mend: str) -> Finding:
    return Finding(Severity.MISTAKE, check, places, fact, mend)


def warning(check: str, places: tuple[ProcessPlace, ...], fact: str, mend: str) -> Finding:
    return Finding(Severity.WARNING, check, places, fact, mend)


def by_value(values: Mapping[ProcessPlace, str]) -> dict[str, tuple[ProcessPlace, ...]]:
    grouped: dict[str, list[ProcessPlace]] = {}
    for place, value in sorted(values.items()):
        grouped.setdefault(value, []).append(place)
    most_first = sorted(grouped.items(), key=lambda item: -len(item[1]))
    return {value: tuple(places) for value, places in most_first}
