"""The outcome of a check of a machine, a cluster or a service's configuration."""

from dataclasses import dataclass
from enum import StrEnum


class CheckVerdict(StrEnum):
    OK = "ok"
    NOTE = "note"  # works, but may be of interest
    FAIL = "fail"  # does not work, or not as requested
    AWAY = "away"  # the other side does not answer at the moment


@dataclass(frozen=True)
class Check:
    name: str
    verdict: CheckVerdict
    detail: str
    mend: str = ""  # how to correct it
