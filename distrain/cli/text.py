"""Text from elsewhere without what a terminal might obey. Pure."""

import re
import unicodedata

_UNUSUAL = re.compile(r"[^\x20-\x7e\t\n]")


def clean(text: object) -> str:
    r"""A text whose control characters, and those that reorder or hide text, are question marks.

    Lines and tabs stay; a carriage return is the end of a line.

    >>> clean("title\x1b]0;x\x07, \u202eright to left\r\nnext line")
    'title?]0;x?, ?right to left\nnext line'
    """
    text = str(text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNUSUAL.sub(lambda found: found[0] if _is_harmless(found[0]) else "?", text)


def clean_line(text: object) -> str:
    r"""The first line of a text, cleaned.

    >>> clean_line("killed\x1b[2J\nits last words")
    'killed?[2J'
    """
    lines = str(text).splitlines()
    return clean(lines[0]).replace("\t", " ") if lines else ""


def _is_harmless(character: str) -> bool:
    # Python counts the wide and narrow spaces of other scripts as unprintable.
    return character.isprintable() or unicodedata.category(character) == "Zs"
