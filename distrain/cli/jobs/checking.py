"""A look of a cluster's worker at a job's data, before a service gets the job."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distrain.cli.output import print_remark
from distrain.errors import ClusterError, Mistakes

if TYPE_CHECKING:
    from distrain.client import Client


def check_data(client: "Client", body: Mapping[str, Any]) -> None:
    """Have a worker look, and print what it remarks.

    Args:
        body: What would be submitted.

    Raises:
        InputError: The spec or the data have mistakes; the message has all of them.
        ClusterError: No worker could look.
    """
    print_remark("a worker looks at the data; nothing is submitted yet")
    checked = client.validate(
        body["spec"], project=body.get("project"), cluster=body.get("cluster"), data=True
    )
    if checked.document.get("state") == "lost":
        why = checked.document.get("error") or "it was lost"
        raise ClusterError(
            f"the job could not be checked on a worker: {why}",
            where={"server": client.address},
            hint="Nothing was submitted. See `distrain jobs` for who has the workers, or submit "
            "without --check.",
        )
    mistakes = Mistakes()
    for one in checked.errors:
        if one.get("message"):  # of a worker
            mistakes.add_json(one, on="a worker")
        else:
            mistakes.add_json({"message": one.get("detail")}, at=one.get("pointer"))
    mistakes.raise_found()
    for note in checked.notes:
        print_remark(f"note of a worker: {note}")
