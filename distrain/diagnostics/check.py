"""The outcome of a check of a machine, a cluster or a service's configuration."""

from dataclasses import dataclass
from enum import StrEnum


class CheckVerdict(StrEnum):
    OK = "ok"
    NOTE = "note"  # works, but somebody may care
    FAIL = "fail"  # does not work, or not as asked
    AWAY = "away"  # the other side does not answer now


@dataclass(frozen=True)
class Check:
    name: str
    verdict: CheckVerdict
    detail: str
    mend: str = ""  # what to do about it
