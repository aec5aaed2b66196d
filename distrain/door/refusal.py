"""The answer to a request that is not carried out."""

from typing import Any


class Refusal(Exception):
    """A request that is not carried out.

    Args:
        status: Of HTTP.
        code: One word for programs.
        error: What is wrong, for people.
        hint: What to do about it.
        more: Other keys of the answer.
    """

    def __init__(self, status: int, code: str, error: str, hint: str, **more: Any):
        super().__init__(error)
        self.status = status
        self.document = {"code": code, "error": error, "hint": hint, **more}
