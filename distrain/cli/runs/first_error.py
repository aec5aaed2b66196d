"""What `distrain logs --first-error` prints."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distrain.cli.output import json_wanted, print_answer, print_result

if TYPE_CHECKING:
    from distrain.runs import LoggedError


def print_first_error(
    error: "LoggedError | None", account: Mapping[str, Any] | None, path: str
) -> None:
    """Print the error of a run's ranks that came first.

    Args:
        account: How the coordinator says that an attempt ended: told where no rank logged why.
        path: The name of the error's log.
    """
    account = account if error is None or error.of_peers else None
    if json_wanted():
        print_answer(error=error and _as_json(error, path), coordinator=account)
        return
    if error is None:
        print_result("No rank has logged an error.")
    else:
        where = f"attempt {error.log.attempt}, rank {error.log.rank}"
        print_result(f"==> {where}: {path}, line {error.line} <==", bold=True)
        print_result(error.text)
    if account:
        print_result(f"The coordinator's account: {account['reason']}: {account['message']}")


def _as_json(error: "LoggedError", path: str) -> dict[str, Any]:
    where = {"attempt": error.log.attempt, "rank": error.log.rank, "path": path}
    return {**where, "line": error.line, "text": error.text, "of_peers": error.of_peers}
