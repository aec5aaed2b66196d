"""From a path or URL to a folder."""

from pathlib import Path

from distrain.storage.folder import Folder
from distrain.storage.local_folder import LocalFolder
from distrain.storage.remote_folder import RemoteFolder
from distrain.storage.urls import check_url


def open_folder(url: str) -> Folder:
    """The folder that a path or URL names.

    Raises:
        DataError: The URL holds a password, or names no bucket.
        OSError: No such filesystem is known, or the package for it is not installed.
    """
    if "://" not in url:
        return LocalFolder(Path(url))
    if url.startswith(("file://", "local://")):
        return LocalFolder(Path(url.partition("://")[2]))
    check_url(url)
    return RemoteFolder.open(url)
