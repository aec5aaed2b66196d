"""Folders and prefixes for what is of no use after a command, however that ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from distrain.storage.outputs import translated_errors
from distrain.storage.prefixes import held_prefix
from distrain.storage.unfinished import make_locked, partial_name, remove_aside, remove_left
from distrain.storage.urls import is_remote

_NAME = "distrain-staging"


@contextlib.contextmanager
def scratch_folder(place: str | Path) -> Iterator[str]:
    """Yield a new folder in a folder, or a new prefix at a URL; at the end it is removed.

    Several commands may use one place. What killed ones left there is removed. Errors as
    `whole_output`.
    """
    if is_remote(place):
        with held_prefix(str(place)) as url:
            yield url
        return
    final = Path(place).absolute() / _NAME
    own = partial_name(final)
    with contextlib.ExitStack() as held:
        with translated_errors(final):
            held.enter_context(make_locked(own))
            remove_left(final, own=own)
        try:
            yield str(own)
        finally:
            remove_aside(own)
