"""What `distrain logs --first-error` prints."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distrain.cli.output import json_wanted, print_answer, print_result

if TYPE_CHECKING:
    from distrain.runs import LoggedError


def print_first_error(
    error: "LoggedError | None",
    account: Mapping[str, Any] | None,
    path: str,
    silent: Sequence[int] = (),
) -> None:
    """Print the error of a run's ranks that came first.

    Args:
        account: The coordinator's account of the attempt's end, for errors that no rank logged.
        path: The name of the error's log.
        silent: The ranks of its attempt that logged no error.
    """
    of_peers = error is not None and error.of_peers
    account = account if error is None or of_peers else None
    if json_wanted():
        found = error and {**_as_json(error, path), "silent_ranks": list(silent)}
        print_answer(error=found, coordinator=account)
        return
    if error is None:
        print_result("No rank has logged an error.")
    if account:
        print_result(f"The coordinator's account: {account['reason']}: {account['message']}")
    if error is None:
        return
    if of_peers:
        print_result(_of_lost_peers(silent))
    where = f"attempt {error.log.attempt}, rank {error.log.rank}"
    print_result(f"==> {where}: {path}, line {error.line} <==", bold=True)
    print_result(error.text)


def _of_lost_peers(silent: Sequence[int]) -> str:
    lost = "No rank has logged a cause, only that it lost a peer."
    if not silent:
        return lost
    ranks = f"Rank{'s' if len(silent) > 1 else ''} {', '.join(map(str, silent))}"
    return f"{lost} {ranks} logged nothing: killed from outside, or by Linux for lack of memory."


def _as_json(error: "LoggedError", path: str) -> dict[str, Any]:
    where = {"attempt": error.log.attempt, "rank": error.log.rank, "path": path}
    return {**where, "line": error.line, "text": error.text, "of_peers": error.of_peers}
