"""Checks the prose of docs, docstrings, comments and messages for banned idioms: `make check`.

    python tools/prose.py            # list all findings, and fail if there are any
    python tools/prose.py --count    # count the findings by idiom

To ban another idiom, add a line to `IDIOMS`. Code in backticks, fences and doctests is not checked.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]

IDIOMS = {
    "anew": r"\banew\b",
    "go on": r"\b(go|goes|going|went|gone) on\b",
    "lie": r"\blies?\b(?! about\b)",
    "stand in/for": r"\bstands? (in|for|at|on|beside|before|after|there|still|where)\b",
    "told": r"\btold\b",
    "tell of": r"\btells? (of|apart|what|who|why|whether)\b",
    "said": r"\bsaid\b",
    "spare": r"\b(spares?|spared)\b",
    "taken for": r"\btaken for\b",
    "of before": r"\bof (before|late)\b",
    "by itself": r"\bby (itself|themselves)\b",
    "wants": r"\bwants?\b",
    "that there is": r"\bthat there (is|are)\b",
    "so many": r"\bso (many|much|often|long)\b(?! that\b| as\b)",
    "as many": r"\bas (many|much)\b(?=\s*[.,;:)]|$)",
    "whatever": r"\b(whatever|whoever|whichever)\b",
    "is no": r"(?<![Tt]here )\b(is|are|was|were) no (?!longer\b|\w+ than\b)",
    "nobody": r"\bnobody\b",
    "of one's own": r"\bof (one's|your|their user's) own\b",
    "in vain": r"\bin vain\b",
    "authority": r"(?<![Cc]ertificate )\bauthorit(y|ies)\b",
    "dense part": r"\bdense part\b",
    "what as a subject": r"^(What|Whom?|Where|How (many|much|often|long)) ",
}
"""Regular expressions of banned idioms; the last one is for the beginning of a docstring."""

ALLOWED = (("tools/prose.py", ""),)
"""Texts that may contain an idiom: a pattern of paths, and a part of the text."""

HISTORY = ("docs/log.md", "docs/decisions/*", "CHANGELOG.md")
"""Records of the past, which are not rewritten."""

_CHECKED = ("distrain", "benchmarks", "examples", "deploy", "helm", "tools", "docs", "*.md")
_COMMENTED = (".yml", ".yaml", ".tpl", ".conf", ".service", ".timer", ".env", ".sbatch", ".nft")
_COMMENT = re.compile(r"^\s*#+ ?(.*)$|\{\{-? ?/\*(.*?)\*/")
_CODE = re.compile(r"`[^`]*`|\{[^{}]*\}|\[[^\]]*\]\([^)]*\)|https?://\S+")


class Text(NamedTuple):
    path: str
    line: int
    text: str
    is_docstring: bool = False


def main() -> None:
    """Print the findings; exit with 1 if there are any."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", action="store_true", help="count all findings by idiom")
    parser.add_argument("paths", nargs="*", default=_CHECKED, help="only these paths")
    options = parser.parse_args()
    paths = tracked(options.paths)
    if options.count:
        counted = Counter(idiom for path in paths for idiom, _ in findings(path))
        for idiom in IDIOMS:
            print(f"{counted[idiom]:6} {idiom}")
        print(f"{counted.total():6} in all")
        return
    found = [one for path in paths for one in findings(path)]
    for idiom, text in found:
        print(f"{text.path}:{text.line}: {idiom}: {' '.join(text.text.split())[:90]}")
    if found:
        sys.exit(f"{len(found)} banned idioms; see IDIOMS in tools/prose.py")


def tracked(paths: list[str]) -> list[str]:
    """Return the tracked files below some paths, without records of the past."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for path in listed.stdout.splitlines() if not matches(path, HISTORY)]


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def findings(path: str) -> Iterator[tuple[str, Text]]:
    """Yield the idioms in a file, each with its text."""
    for text in texts(path):
        if any(fnmatch(path, where) and part in text.text for where, part in ALLOWED):
            continue
        prose = _CODE.sub("`", text.text)
        for idiom, pattern in IDIOMS.items():
            if pattern.startswith("^") and not text.is_docstring:
                continue
            if re.search(pattern, prose):
                yield idiom, text


def texts(path: str) -> Iterator[Text]:
    """Yield the docstrings, comments and messages of a file, or the paragraphs of a page."""
    file = ROOT / path
    if file.is_symlink() or not file.is_file():
        return
    if path.endswith(".py"):
        yield from _of_python(path, file.read_text())
    elif path.endswith(".md"):
        yield from _of_page(path, file.read_text())
    elif path.endswith(_COMMENTED):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            for comment in _COMMENT.finditer(line):
                yield Text(path, number, comment[1] or comment[2] or "")


def _of_python(path: str, source: str) -> Iterator[Text]:
    tree = ast.parse(source)
    bodies: Iterator[Any] = (getattr(node, "body", None) for node in ast.walk(tree))
    firsts = [body[0].value for body in bodies if _is_text(body)]
    for node in firsts:
        paragraphs = re.sub(r"(?m)^\s*(>>>|\.\.\.).*(\n(?!\s*\n|\s*>>>).*)*", "", node.value)
        yield Text(path, node.lineno, paragraphs, is_docstring=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in firsts:
            yield Text(path, node.lineno, node.value if " " in node.value.strip() else "")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(path, token.start[0], token.string.lstrip("# "))


def _is_text(body: object) -> bool:
    if not isinstance(body, list) or not body or not isinstance(body[0], ast.Expr):
        return False
    value = body[0].value
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _of_page(path: str, page: str) -> Iterator[Text]:
    in_code = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield Text(path, number, line)


if __name__ == "__main__":
    main()
