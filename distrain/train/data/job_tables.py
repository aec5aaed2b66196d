"""Passes the tables of a job from the command that checked them to the ranks of every attempt.

So the footers of the data files are read once per job, and not again when an attempt begins.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from distrain.jobs.spec.job import JobSpec
from distrain.loader.partition.table import Table
from distrain.schema.schema import Schema
from distrain.storage.outputs import atomic_file
from distrain.storage.urls import is_remote
from distrain.version import __version__

log = logging.getLogger(__name__)

_KEY, _TRAIN, _VALID, _UNTHINNED = "key", "train", "valid", "unthinned"


@dataclass(frozen=True)
class Inputs:
    """The tables of a job, and their schema."""

    schema: Schema
    train: Table
    valid: Table | None
    # the training table before `data.negatives`; `None` if no negatives are removed
    unthinned: Table | None = None

    @cached_property
    def all_rows(self) -> Table:
        """Training and validation rows as one table, which a refit trains on."""
        assert self.valid is not None
        return self.train.followed_by(self.valid)

    @property
    def fingerprint(self) -> str:
        """The fingerprints of both tables in hex, equal on ranks that read the same files."""
        return self.train.fingerprint + (self.valid.fingerprint if self.valid else "")


def write_tables(inputs: Inputs, spec: JobSpec, path: Path) -> None:
    """Write the tables to a file, from which ranks read them with `read_tables`.

    Raises `OutputError` if it cannot be written.
    """
    with atomic_file(path) as partial, zipfile.ZipFile(partial, "w") as file:
        file.writestr(_KEY, _key(spec, inputs.schema))
        file.writestr(_TRAIN, inputs.train.to_bytes())
        if inputs.valid is not None:
            file.writestr(_VALID, inputs.valid.to_bytes())
        if inputs.unthinned is not None:
            file.writestr(_UNTHINNED, inputs.unthinned.to_bytes())


def read_tables(path: Path, spec: JobSpec, schema: Schema) -> Inputs | None:
    """Return the tables in a file that `write_tables` wrote.

    Returns `None` if the file is missing or damaged, or was written for other data or another
    schema.
    """
    try:
        with zipfile.ZipFile(path) as file:
            if file.read(_KEY).decode() != _key(spec, schema):
                return None
            valid = Table.from_bytes(file.read(_VALID)) if spec.data.valid else None
            thins = spec.data.negatives < 1
            unthinned = Table.from_bytes(file.read(_UNTHINNED)) if thins else None
            return Inputs(schema, Table.from_bytes(file.read(_TRAIN)), valid, unthinned)
    except FileNotFoundError:
        return None
    except Exception as error:  # a zip file can be damaged in many ways
        log.warning("cannot use %s, reading all footers: %s", path, error)
        return None


def _key(spec: JobSpec, schema: Schema) -> str:
    """Return a hash of everything that determines the tables, except the content of the files.

    The hash is computed from distrain's version, the schema, and the spec's fields that affect the
    reading of footers. A change of a file is detected later, when it is read.
    """
    document = spec.data.model_dump(mode="json")
    places = [_absolute(path) for split in ("train", "valid") for path in document[split]]
    names = (
        "hive",
        "fill_null_id",
        "fill_null_value",
        "filter",
        "negatives",
        "windows",
    )
    how = [*(document[name] for name in names), spec.train.seed]
    text = json.dumps([__version__, places, how, repr(schema)])
    return hashlib.sha256(text.encode()).hexdigest()


def _absolute(path: str) -> str:
    return path if is_remote(path) else os.path.abspath(os.path.expanduser(path))
