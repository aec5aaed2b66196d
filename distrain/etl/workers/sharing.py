"""Whether workers see the folders that tasks leave files in for each other."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from distributed import Client

from distrain.errors import OutputError
from distrain.storage import is_remote, translated_errors
from distrain.wording import some

_MOST_NAMED = 5


def check_shared(places: Sequence[str], client: Client) -> None:
    """Raise an `OutputError` if a worker does not see one of these folders; URLs are left out.

    A new file is made in each, and workers look for it: a folder of the same name does not do.
    """
    for place in dict.fromkeys(place for place in places if not is_remote(place)):
        probe = Path(place) / f".shared-{uuid.uuid4().hex}"
        with translated_errors(place):
            probe.touch()
        try:
            found = client.run(_sees, str(probe))
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()
        blind = sorted({host for host, sees in found.values() if not sees})
        if blind:
            raise OutputError(
                "workers do not see this folder, in which all of them leave files for each other",
                where={"path": place, "workers on": some(blind, _MOST_NAMED)},
                hint="Name a folder on a filesystem that all workers share, or an object store: "
                "--staging s3://BUCKET/PATH for what is of no use afterwards, --out for the rest.",
            )


def _sees(path: str) -> tuple[str, bool]:
    with contextlib.suppress(OSError):
        os.listdir(os.path.dirname(path))  # or a network filesystem may answer from its cache
    return os.uname().nodename, os.path.exists(path)
