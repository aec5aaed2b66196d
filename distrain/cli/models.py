"""Where a saved model lies, given what a person types."""

from pathlib import Path

from distrain.run_paths import RunPaths


def find_model(path: Path) -> Path:
    """The model folder of a run directory, or the path itself."""
    inside = RunPaths(path).model
    return inside if inside.is_dir() else path
