"""Counts of the package's structure: files, lines, folders, imports past a face, circles, names.

`python tools/structure/house.py [REPOSITORY]` prints them as one JSON object;
`python tools/structure/house.py --table BEFORE [REPOSITORY]` those of two repositories as a table.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# A contract of import-linter imports this as a module of the package `tests.support`.
sys.path.append(str(Path(__file__).parent))
from doc_sentences import LONGEST, long_sentences, pages_of

PACKAGE = "distrain"

Imports = Iterator[tuple[str, int]]


def modules_of(repository: Path) -> dict[str, Path]:
    """The package's modules by dotted name; a folder goes by its own name."""
    found = {}
    for path in sorted((repository / PACKAGE).rglob("*.py")):
        parts = path.relative_to(repository).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(tree: ast.AST, faces: Mapping[str, set[str]], modules: Collection[str]) -> Imports:
    """The modules of the package that a module imports, at its top or later, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                # A function may have its module's name: then the face's own is meant.
                shown = alias.name in faces.get(str(node.module), ())
                yield (full if full in modules and not shown else str(node.module)), node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield alias.name, node.lineno


def shown_by(tree: ast.Module) -> set[str]:
    """The names that a folder's `__init__` exports: those imported as themselves, and `__all__`."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names |= set(ast.literal_eval(node.value))
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if alias.name == alias.asname}
    return names


def passes_a_face(importer: str, imported: str, folders: set[str]) -> bool:
    """Whether an import names a module inside a folder that the importer is not in."""
    if imported in folders:
        return False
    folder = imported.rpartition(".")[0]
    return not (importer == folder or importer.startswith(folder + "."))


@dataclass(frozen=True)
class Structure:
    """The package's modules with their syntax trees, and which of them are folders."""

    paths: Mapping[str, Path]
    trees: Mapping[str, ast.Module]
    folders: set[str]

    @classmethod
    def of(cls, repository: Path) -> "Structure":
        """Read a repository."""
        paths = modules_of(repository)
        trees = {name: ast.parse(path.read_text()) for name, path in paths.items()}
        folders = {name for name, path in paths.items() if path.name == "__init__.py"}
        return cls(paths, trees, folders)

    @cached_property
    def imports(self) -> list[tuple[str, str, int]]:
        """All imports inside the package: who, what, and the line."""
        faces = {name: shown_by(self.trees[name]) for name in self.folders}
        return [
            (name, imported, line)
            for name, tree in self.trees.items()
            for imported, line in imports_of(tree, faces, self.paths)
        ]

    def edges(self) -> dict[str, set[str]]:
        """What each module imports, types and faces included: but the faces of its own folders."""
        edges: dict[str, set[str]] = defaultdict(set)
        for importer, imported, _ in self.imports:
            if not f"{importer}.".startswith(f"{imported}."):
                edges[importer].add(imported)
        return edges

    def folder_sizes(self) -> Counter[str]:
        """How many modules each folder holds beside its face."""
        return Counter(name.rpartition(".")[0] for name in self.paths if name not in self.folders)

    def past_faces(self) -> list[tuple[str, str, int]]:
        """The imports that name a module in a folder whose face they should go through.

        The program's entry may import `cli.main`: the face of `cli` loads nothing.
        """
        imports = (one for one in self.imports if one[0] != f"{PACKAGE}.__main__")
        return [one for one in imports if passes_a_face(one[0], one[1], self.folders)]


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for peer in edges.get(node, ()):
            if peer not in index:
                visit(peer)
                low[node] = min(low[node], low[peer])
            elif peer in stack:
                low[node] = min(low[node], index[peer])
        if low[node] == index[node]:
            group: list[str] = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for node in list(edges):
        if node not in index:
            visit(node)
    return found


def line_kinds(text: str) -> Counter[str]:
    """How many lines of a source are code, docstring, comment and empty."""
    kinds = dict.fromkeys(range(1, text.count("\n") + 1), "code")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            kinds[number] = "empty"
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line.strip().startswith("#"):
            kinds[token.start[0]] = "comment"
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                kinds[number] = "docstring"
    return Counter(kinds.values())


def public_names(tree: ast.Module) -> int:
    """Functions, classes and constants of a module whose names have no underscore before them."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(t.id for t in targets if isinstance(t, ast.Name))
    return sum(not name.startswith("_") for name in names)


def classes(tree: ast.Module) -> list[str]:
    """The names of a module's classes, those inside others and inside functions included."""
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def room_of(module: str) -> str:
    """The folder of the package that a module lies in; the rest are modules by themselves."""
    return module.split(".")[1] if module.count(".") else ""


def shared_names(names: Iterator[tuple[str, str]]) -> list[str]:
    """The public names that stand in several rooms, given as pairs of room and name."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for room, name in names:
        if not name.startswith("_"):
            rooms[name].add(room)
    return sorted(name for name, where in rooms.items() if len(where) > 1)


def lines_by_room(structure: Structure) -> dict[str, Counter[str]]:
    """How many lines of each kind every room has; modules beside the rooms are one of their own."""
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for name, path in structure.paths.items():
        room = room_of(name)
        shown = f"`{room}`" if f"{PACKAGE}.{room}" in structure.folders else "modules beside them"
        rooms[shown] += line_kinds(path.read_text())
    return rooms


def measures(repository: Path, structure: Structure) -> dict[str, int]:
    """The figures of a repository that the table has beside its lines."""
    trees = structure.trees
    named = ((room_of(name), one) for name, tree in trees.items() for one in classes(tree))
    pages = [page.read_text(encoding="utf-8") for page in pages_of(repository)]
    return {
        "files": len(trees),
        "classes": sum(len(classes(tree)) for tree in trees.values()),
        "public names": sum(public_names(tree) for tree in trees.values()),
        "public class names in several rooms": len(shared_names(named)),
        "modules in import circles, types included": sum(
            len(group) for group in circles(structure.edges())
        ),
        "imports past a face": len(structure.past_faces()),
        "files that name the figure `eta_s`": sum(
            re.search(r"\beta_s\b", path.read_text()) is not None
            for path in structure.paths.values()
        ),
        f"sentences of more than {LONGEST} words in docs": sum(
            len(long_sentences(page)) for page in pages
        ),
        "lines of docs": sum(page.count("\n") for page in pages),
    }


def table(before: Path, now: Path) -> str:
    """Two repositories side by side, as a table in Markdown."""
    structures = [Structure.of(repository) for repository in (before, now)]
    rooms = [lines_by_room(structure) for structure in structures]
    all_lines = [sum(of_rooms.values(), Counter[str]()) for of_rooms in rooms]
    figures = [measures(*both) for both in zip((before, now), structures, strict=True)]
    rows = [f"| {name} | {old:,} | {figures[1][name]:,} |" for name, old in figures[0].items()]
    lines = [f"| lines | {all_lines[0].total():,} | {all_lines[1].total():,} |"]
    lines += [
        f"| lines of {kind} | {all_lines[0][kind]:,} | {all_lines[1][kind]:,} |"
        for kind in ("code", "docstring", "comment", "empty")
    ]
    for room in sorted(rooms[0].keys() | rooms[1].keys()):
        cells = [
            f"{of[room].total():,} ({of[room]['code']:,} code, {of[room]['docstring']:,} docstring)"
            if room in of
            else "-"
            for of in rooms
        ]
        lines.append(f"| {room} | {cells[0]} | {cells[1]} |")
    return "\n".join(["| | before | now |", "|---|--:|--:|", *rows, *lines])


def count(repository: Path) -> dict[str, object]:
    """All figures of a repository."""
    structure = Structure.of(repository)
    paths = structure.paths
    lines = sum((line_kinds(path.read_text()) for path in paths.values()), Counter[str]())
    beside = [repository / name for name in ("tests", "benchmarks", "examples")]
    return {
        "files": len(paths),
        "lines": sum(lines.values()),
        **{f"lines_{kind}": lines[kind] for kind in ("code", "docstring", "comment", "empty")},
        "lines_of_tests_benchmarks_examples": sum(
            path.read_text().count("\n") for folder in beside for path in folder.rglob("*.py")
        ),
        "largest_folders": structure.folder_sizes().most_common(4),
        "imports_of_the_package": sum(1 for _ in structure.imports),
        "imports_past_a_face": len(structure.past_faces()),
        "circles": circles(structure.edges()),
        "public_names": sum(public_names(tree) for tree in structure.trees.values()),
    }


def main(arguments: list[str]) -> None:
    """Print a repository's figures as JSON, or two repositories' as a table."""
    if arguments[:1] == ["--table"]:
        print(table(Path(arguments[1]), Path((*arguments, ".")[2])))
    else:
        print(json.dumps(count(Path((*arguments, ".")[0])), indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
