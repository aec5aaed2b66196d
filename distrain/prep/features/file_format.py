"""Detects the format of a file by its first bytes."""

from distrain.errors import DataError
from distrain.storage.inputs import PARQUET_SUFFIXES, open_input
from distrain.storage.retrying import RETRY_S

_CODECS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_FOREIGN = {
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"\x04\x22\x4d\x18": "lz4",
    b"ORC": "ORC",
}
PARQUET = "parquet"


def detect_format(path: str) -> str | None:
    """Return `parquet`, `gzip`, `zstd`, or `None` for plain text, by the file's first bytes.

    Raises a `DataError` for other formats, for other content in `*.parquet` or `*.pq`, and if the
    file cannot be opened; `Unavailable` if the storage does not answer.
    """
    with open_input(path, retry_s=RETRY_S) as handle:
        head = handle.read(8)
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            raise DataError(
                f"{name} files are not supported",
                where={"file": path},
                hint="Use plain text, gzip, zstd or parquet.",
            )
    if head.startswith((b"PAR1", b"PARE")):  # PARE: an encrypted footer; Arrow reports it
        return PARQUET
    if path.endswith(PARQUET_SUFFIXES):
        raise DataError(
            "not a parquet file, despite its name",
            where={"file": path},
            hint="Its first bytes are not PAR1; write it again.",
        )
    return next((codec for magic, codec in _CODECS.items() if head.startswith(magic)), None)
