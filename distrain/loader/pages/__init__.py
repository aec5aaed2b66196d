"""Decodes pages of flat columns of local files, in C, where that is faster than Arrow."""

from distrain.loader.pages.footer import codec_bytes as codec_bytes
from distrain.loader.pages.leaves import (
    BUILT as BUILT,
    PageColumns as PageColumns,
    is_enabled as is_enabled,
    page_columns as page_columns,
)
from distrain.loader.pages.pages_of_file import (
    REFUSED as REFUSED,
    PagesOfFile as PagesOfFile,
    read_columns as read_columns,
)
