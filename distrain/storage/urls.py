"""Distinguishes URLs from paths, and rejects URLs with passwords."""

import re
from pathlib import Path

from distrain.errors import DataError

# A port is not a password: `hdfs://host:8020/a@b`.
_SECRET = re.compile(r"(?<=://)[^/@:\s]*:(?![0-9]+(?:/|$))[^@\s]*@")
_BUCKET = re.compile(r"[A-Za-z0-9.\-_]{1,255}|arn:aws[^/]*")
_GLOB_MARKS = "*?["
_S3 = ("s3", "s3a")


def is_remote(path: str | Path) -> bool:
    """Return True if a path is a URL, which fsspec opens, rather than a local path.

    A `file://` URL counts as a URL, since `Path` and `os` do not accept its text.

    >>> is_remote("s3://bucket/day_0"), is_remote("data/day_0")
    (True, False)
    """
    return "://" in str(path)


def url_of(path: str | Path) -> str | None:
    """Return the URL of a path, also if `Path` has removed one of its slashes; `None` for others.

    >>> url_of(Path("s3://bucket/run")), url_of("data/day_0")
    ('s3://bucket/run', None)
    """
    text = str(path)
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text):
        return None
    return text if is_remote(text) else text.replace(":/", "://", 1)


def path_or_url(text: str | Path) -> Path | str:
    """Return a local path or a `file://` URL as a `Path`, and any other URL as text.

    >>> path_or_url("s3://bucket/day_0"), path_or_url("data/day_0")
    ('s3://bucket/day_0', PosixPath('data/day_0'))
    """
    if not is_remote(text):
        return Path(text)
    scheme, _, rest = str(text).partition("://")
    return Path(rest) if scheme in ("file", "local") else str(text)


def check_url(url: str) -> None:
    """Raise a `DataError` if a URL has a password, or an S3 URL an invalid bucket name.

    Paths without `://` pass, and so do bucket names with marks of a glob.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return
    if _SECRET.search(url):
        raise DataError(
            "the URL contains a password, which would appear in logs and run folders",
            where={"url": without_secrets(url)},
            hint=f"Write it without `user:password@`. {_how_to_give_credentials(scheme)}",
        )
    bucket = rest.partition("/")[0]
    is_glob = any(mark in bucket for mark in _GLOB_MARKS)
    if scheme in _S3 and bucket and not is_glob and not _BUCKET.fullmatch(bucket):
        raise DataError(
            f"{bucket!r} is not a valid bucket name",
            where={"url": url},
            hint="Buckets have letters, digits, dots, hyphens and underscores in their names: "
            "s3://BUCKET/PATH. " + _how_to_give_credentials(scheme),
        )


def without_secrets(text: str) -> str:
    """Return a text without the passwords in its URLs.

    >>> without_secrets("no file s3://KEY:SECRET/2@bucket/x")
    'no file s3://***@bucket/x'
    """
    return _SECRET.sub("***@", text)


def _how_to_give_credentials(scheme: str) -> str:
    if scheme in _S3:
        return (
            "Credentials come from the environment of this process and of the Dask workers: "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the machine's role."
        )
    return (
        "Credentials come from the environment of this process and of the Dask workers, "
        f"such as FSSPEC_{scheme.upper()}_PASSWORD, or from ~/.config/fsspec."
    )
