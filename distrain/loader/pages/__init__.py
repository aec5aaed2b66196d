"""Decodes pages of flat columns of local files, in C, where that is faster than Arrow."""

from distrain.loader.pages.footer import codec_bytes
from distrain.loader.pages.pages_of_file import (
    BUILT,
    REFUSED,
    OpenColumn,
    PageColumns,
    PagesOfFile,
    is_enabled,
    page_columns,
)

__all__ = [
    "BUILT",
    "PageColumns",
    "PagesOfFile",
    "OpenColumn",
    "REFUSED",
    "codec_bytes",
    "is_enabled",
    "page_columns",
]
