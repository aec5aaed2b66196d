"""Decodes pages of flat columns of local files, in C, where that is faster than Arrow."""

from distrain.loader.pages.footer import codec_bytes
from distrain.loader.pages.pages_of_file import BUILT, PagesOfFile, is_enabled

__all__ = ["BUILT", "PagesOfFile", "codec_bytes", "is_enabled"]
