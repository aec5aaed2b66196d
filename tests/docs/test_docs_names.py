"""What the guides say of the code holds: the map is current, all files and names exist."""

import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("distrain", "tests", "docs", "benchmarks", "examples", "deploy", "helm", "tools")
# What these say was so when it was written.
OF_THEIR_TIME = ("CHANGELOG.md", "docs/log.md", "docs/decisions/*")
# What commands write, `make docs` among them.
WRITTEN = {"slowest.md", "docs/_build/html", "served/score.py", "OUT/score.py"}
WRITTEN |= {"OUT/deltas.py", "wednesday/deltas.py"}


def files_named(text):
    """Paths in code spans, and scripts that commands start.

    Paths with a word in capitals stand for a name of the reader's own.
    """
    beginning = "|".join(FOLDERS)
    for span in re.findall(r"`([^`\n]+)`", text):
        for word in span.split():
            is_file = re.fullmatch(r"[\w./-]+\.(?:py|pyi|c|h|toml|importlinter|md)", word)
            is_path = is_file or re.fullmatch(rf"(?:{beginning})/[\w./-]+", word)
            if is_path and not re.search(r"\b[A-Z]{4,}\b(?!\.md)", word):
                yield word
    yield from re.findall(r"^\$ (?:\S+/)?python3? (\S+\.py)", text, re.M)


def exists(name):
    """Whether a path from the root, from the package, or the mere name of a file, is there."""
    if any((folder / name).exists() for folder in (ROOT, ROOT / "distrain")):
        return True
    return "/" not in name and any(any((ROOT / folder).rglob(name)) for folder in FOLDERS)


def resolves(name):
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("distrain"):
                return True  # a library that is not installed
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_files_that_the_pages_name_exist(sources):
    named = {
        (str(path), name)
        for path, text in sources.items()
        if not any(path.match(one) for one in OF_THEIR_TIME)
        for name in files_named(text)
    }
    assert len(named) > 200
    assert {one for one in named if one[1] not in WRITTEN and not exists(one[1])} == set()


def test_names_of_the_package_in_the_pages_resolve(sources):
    pages = {p: t for p, t in sources.items() if not any(p.match(one) for one in OF_THEIR_TIME)}
    # Not the start of a file's name, of a URL's, or of a Prometheus metric's.
    pattern = r"(?<![\w/.-])(distrain(?:\.[A-Za-z]\w*)+)(?![\w/-]|\.\w)"
    files = r"distrain\.(?:json|rules(?:\.test)?\.yml)"
    named = {(str(p), n) for p, text in pages.items() for n in re.findall(pattern, text)}
    named = {(page, name) for page, name in named if not re.fullmatch(files, name)}
    assert len(named) > 20
    assert {one for one in named if not resolves(one[1])} == set()
