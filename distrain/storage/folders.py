"""From a path or URL to a folder."""

from pathlib import Path

from distrain.storage.folder import Folder
from distrain.storage.local_folder import LocalFolder
from distrain.storage.remote_folder import RemoteFolder


def open_folder(url: str) -> Folder:
    """The folder that a path or URL names.

    Raises:
        OSError: No such filesystem is known, or the package for it is not installed.
    """
    if "://" not in url:
        return LocalFolder(Path(url))
    if url.startswith(("file://", "local://")):
        return LocalFolder(Path(url.partition("://")[2]))
    return RemoteFolder.open(url)
