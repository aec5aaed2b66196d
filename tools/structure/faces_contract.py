"""import-linter's contract that a folder is imported through its face, its `__init__`.

It oversees also that no folder holds more modules than can be seen at a glance, and that no modules
import each other in a circle.
"""

from pathlib import Path
from typing import Any

from importlinter import Contract, ContractCheck, output

from tools.structure.house import Structure, circles

MOST_MODULES = 16


class FacesContract(Contract):  # type: ignore[misc]  # import-linter's own base has no types here
    """Modules outside a folder name the folder in their imports, not a module inside it."""

    type_name = "faces"

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        """Read the source itself: a graph cannot tell a face's function from a module."""
        package = Structure.of(Path.cwd())
        found = {
            "past": package.past_faces(),
            "circles": circles(package.edges()),
            "crowded": [n for n, size in package.folder_sizes().items() if size > MOST_MODULES],
        }
        return ContractCheck(kept=not any(found.values()), metadata=found)

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import."""
        for importer, imported, line in check.metadata["past"]:
            face = imported.rpartition(".")[0]
            output.print_error(f"{importer} (l.{line}) imports {imported}: import {face} instead")
        for circle in check.metadata["circles"]:
            output.print_error(f"these import each other in a circle: {', '.join(circle)}")
        for folder in check.metadata["crowded"]:
            output.print_error(f"{folder} has more than {MOST_MODULES} modules")
