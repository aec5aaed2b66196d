"""Sentences of the documentation, for counts of those that are too long to read once.

`python tools/structure/doc_sentences.py [REPOSITORY]` prints the pages with most of them.
`python tools/structure/doc_sentences.py --show PAGE ...` prints those of pages.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

LONGEST = 30
"""Words of a sentence that need no second reading."""

_CODE = re.compile(r"^ *(```|:::).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_BLOCK = re.compile(r"\n\s*\n|\n(?= *(?:[-*] |\d+\. |> |\||#|: ))|(?<!\\)\|")
_MARK = re.compile(r"^(?:[-*>:#]+|\d+\.) ")
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)[.!?][)*\"']*\s+(?=[*_\"'(\[`]*[A-Z0-9`])")


def sentences(page: str) -> Iterator[str]:
    """The sentences of a page; an item of a list, a cell and a heading end one, code is none."""
    prose = _COMMENT.sub("", _CODE.sub("\n\n", page))
    for block in _BLOCK.split(prose):
        text = _MARK.sub("", " ".join(block.split()))
        for sentence in _END.split(text):
            if len(sentence.split()) > 1:
                yield sentence


def long_sentences(page: str) -> list[str]:
    """The sentences of more than `LONGEST` words; a span of code or a link counts as written."""
    return [one for one in sentences(page) if len(one.split()) > LONGEST]


def pages_of(repository: Path) -> list[Path]:
    """The pages of a repository that people read: README, ARCHITECTURE and those of `docs`."""
    beside = [repository / "README.md", repository / "ARCHITECTURE.md"]
    return beside + sorted((repository / "docs").glob("*.md"))


def main(arguments: list[str]) -> None:
    """Print counts by page, or the sentences of some."""
    if arguments[:1] == ["--show"]:
        for name in arguments[1:]:
            for sentence in long_sentences(Path(name).read_text(encoding="utf-8")):
                print(f"{name}: {len(sentence.split())}: {sentence}\n")
        return
    repository = Path(arguments[0] if arguments else ".")
    counts = [
        (len(long_sentences(text)), sum(1 for _ in sentences(text)), path)
        for path in pages_of(repository)
        for text in [path.read_text(encoding="utf-8")]
    ]
    for count, of, path in sorted(counts, reverse=True):
        print(f"{count:5} of {of:5}  {path.relative_to(repository)}")
    print(f"{sum(count for count, _, _ in counts):5}         in all")


if __name__ == "__main__":
    main(sys.argv[1:])
