"""The outcome of a check of a machine, a cluster or a service's configuration."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from distrain.errors import DistrainError


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


def checked(name: str, look: Callable[[], tuple[str, str]]) -> Check:
    """Run a check, and return its outcome under the name `name`.

    `look` makes the check. It returns a text on the result and how to correct it ("" if nothing is
    wrong). With a correction, the verdict is `NOTE`, otherwise `OK`; after an exception, it is
    `FAIL`.
    """
    try:
        detail, mend = look()
    except DistrainError as error:
        return Check(name, CheckVerdict.FAIL, error.message, error.hint or "")
    except Exception as error:  # a failing check is a finding, and others continue
        detail = f"check failed: {type(error).__name__}: {error}"
        return Check(name, CheckVerdict.FAIL, detail)
    return Check(name, CheckVerdict.NOTE if mend else CheckVerdict.OK, detail, mend)
