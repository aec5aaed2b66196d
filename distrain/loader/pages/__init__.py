"""Decodes pages of flat columns of local files, in C, where that is faster than Arrow."""

from distrain.loader.pages.footer import codec_bytes
from distrain.loader.pages.pages_of_file import (
    BUILT,
    REFUSED,
    OpenColumn,
    PagesOfFile,
    is_enabled,
)

__all__ = ["BUILT", "REFUSED", "OpenColumn", "PagesOfFile", "codec_bytes", "is_enabled"]
