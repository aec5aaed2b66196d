"""The table of packages in ARCHITECTURE.md, made from `.importlinter` and docstrings.

python docs/_ext/architecture_map.py            fails where the file is stale
python docs/_ext/architecture_map.py --write    replaces the text between its markers
"""

import ast
import re
import sys
from collections.abc import Iterator
from configparser import ConfigParser, SectionProxy
from pathlib import Path

from markdown_pieces import table

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "distrain"
PAGE = ROOT / "ARCHITECTURE.md"
LONGEST_SENTENCE = 100

_BETWEEN = r"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)"


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring, without its full stop.

    Raises:
        LookupError: There is none, or it does not fit into the map.
    """
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    sentence = re.split(r"\.(?: |$)", text, maxsplit=1)[0]
    if not 0 < len(sentence) <= LONGEST_SENTENCE:
        raise LookupError(
            f"{path.relative_to(ROOT)}: the first sentence of its docstring says what it is for "
            f"(ARCHITECTURE.md) and has 1 to {LONGEST_SENTENCE} characters, not {len(sentence)}"
        )
    return sentence


def contracts() -> dict[str, SectionProxy]:
    """The contracts of `.importlinter` by their ids."""
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    return {
        name.rpartition(":")[2]: parser[name]
        for name in parser.sections()
        if name.startswith("importlinter:contract:")
    }


def layers(contract: SectionProxy) -> list[list[str]]:
    """The modules of each layer, from top to bottom."""
    return [re.split(r"\s*[|:]\s*", line) for line in _lines(contract, "layers")]


def packages() -> str:
    """Return the packages from top to bottom with their sub-packages, and single modules."""
    found = contracts()
    inside: dict[Path, list[str]] = {}
    for folder in _inner_folders(found):
        first_sentence(_module(folder))
        inside.setdefault(folder.parent, []).append(f"`{folder.name}`")
    rows = [
        (
            str(number),
            f"`{name}`",
            first_sentence(_module(package)),
            ", ".join(inside.get(package, [])),
        )
        for number, names in enumerate(layers(found["layers"]), 1)
        for name in names
        for package in [PACKAGE / name]
        if package.is_dir()
    ]
    modules = [name for names in layers(found["layers"]) for name in names]
    beside = ", ".join(
        f"`{_shown(PACKAGE / name)}`" for name in modules if not (PACKAGE / name).is_dir()
    )
    return (
        f"{table(('layer', 'package', 'its job', 'sub-packages'), rows)}\n\n"
        f"Single modules, from top to bottom: {beside}."
    )


def rules() -> str:
    """Return what each contract forbids to whom, one line each; those about layers share a line."""
    found = contracts().values()
    forbidding = [one for one in found if one["type"] == "forbidden"]
    others = [one["name"] for one in found if one["type"] != "forbidden"]
    lines = [f"**{'. '.join(others)}.**"]
    lines += [f"**{one['name']}.** {_forbidden(one)}" for one in forbidding]
    return "\n".join(f"- {line}" for line in lines)


def regenerated(page: str) -> str:
    """The page with what is generated in it replaced."""
    for name, text in (("packages", packages()), ("rules", rules())):
        pattern = re.compile(_BETWEEN.format(name=name), re.DOTALL)
        # Split, not substituted: the text may hold backslashes.
        pieces = pattern.split(page)
        if len(pieces) != 4:
            raise LookupError(f"{PAGE.name} has no markers of its {name}, or several")
        before, start, end, after = pieces
        page = f"{before}{start}\n{text}\n\n{end}{after}"
    return page


def without_rules(page: str) -> str:
    """The page without its list of contracts, whose sentences name modules."""
    return re.sub(_BETWEEN.format(name="rules"), "", page, flags=re.DOTALL)


def main(arguments: list[str]) -> int:
    """Check the page, or write it; returns the exit code."""
    page = PAGE.read_text(encoding="utf-8")
    new = regenerated(page)
    if arguments == ["--write"]:
        PAGE.write_text(new, encoding="utf-8")
    elif new != page:
        print(
            f"{PAGE.name} differs from .importlinter and the packages' docstrings: "
            "python docs/_ext/architecture_map.py --write"
        )
        return 1
    return 0


def _inner_folders(found: dict[str, SectionProxy]) -> Iterator[Path]:
    """Yield sub-packages by name; those with a contract of layers in its order."""
    for package in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        contract = found.get(f"{package.name}-layers")
        if contract is not None:
            order = [name for names in layers(contract) for name in names]
            yield from (package / name for name in order if (package / name).is_dir())
        else:
            yield from sorted(path.parent for path in package.glob("*/__init__.py"))


def _module(path: Path) -> Path:
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _shown(path: Path) -> str:
    name = path.relative_to(PACKAGE).as_posix()
    return name if path.is_dir() else f"{name}.py"


def _forbidden(contract: SectionProxy) -> str:
    sources = _names(_lines(contract, "source_modules"))
    forbidden = _names(_lines(contract, "forbidden_modules"))
    directly = contract.getboolean("allow_indirect_imports", fallback=False)
    others = "" if directly else ", nor anything that imports these"
    return f"{sources} may not import {forbidden}{others}."


def _names(modules: list[str]) -> str:
    return ", ".join(f"`{module.removeprefix('distrain.')}`" for module in modules)


def _lines(contract: SectionProxy, key: str) -> list[str]:
    return [line for line in contract[key].splitlines() if line]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
