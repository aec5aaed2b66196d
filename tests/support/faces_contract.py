"""import-linter's contract that a folder is imported through its face, its `__init__`."""

from pathlib import Path
from typing import Any

from importlinter import Contract, ContractCheck, output

from tests.support.house import Structure


class FacesContract(Contract):  # type: ignore[misc]  # import-linter's own base has no types here
    """Modules outside a folder name the folder in their imports, not a module inside it."""

    type_name = "faces"

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        """Read the source itself: a graph cannot tell a face's function from a module."""
        past = Structure.of(Path.cwd()).past_faces()
        return ContractCheck(kept=not past, metadata={"past": past})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import."""
        for importer, imported, line in check.metadata["past"]:
            face = imported.rpartition(".")[0]
            output.print_error(f"{importer} (l.{line}) imports {imported}: import {face} instead")
