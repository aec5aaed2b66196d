"""Decodes pages of flat columns of local files, in C, where that is faster than Arrow."""

from distrain.loader.pages.footer import codec_bytes
from distrain.loader.pages.leaves import BUILT, PageColumns, is_enabled, page_columns
from distrain.loader.pages.pages_of_file import REFUSED, OpenColumn, PagesOfFile, read_columns

__all__ = [
    "BUILT",
    "PageColumns",
    "PagesOfFile",
    "OpenColumn",
    "REFUSED",
    "codec_bytes",
    "is_enabled",
    "page_columns",
    "read_columns",
]
