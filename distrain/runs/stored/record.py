"""`record.json`: all that is true about a run directory in an object store. Pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from pydantic import TypeAdapter, ValidationError

from distrain.errors import InputError, problem_in
from distrain.runs.run_file import ServiceMark

RECORD = "record.json"
TAIL_BYTES = 2**16
"""Of records that stand in `record.json` itself; more become a segment."""


@dataclass(frozen=True)
class Segment:
    """An object that holds some bytes of a file, and never changes."""

    name: str
    size_bytes: int


@dataclass(frozen=True)
class RecordedFile:
    """A file: the bytes of its segments, and a text behind them."""

    text: str
    modified_s: float
    segments: tuple[Segment, ...] = ()
    line: int = 1  # grows when the file is written anew instead of longer

    @property
    def size_bytes(self) -> int:
        return self.in_segments_bytes + len(self.text.encode())

    @property
    def in_segments_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def says_the_same(self, other: "RecordedFile | None") -> bool:
        return other is not None and replace(other, modified_s=self.modified_s) == self


@dataclass(frozen=True)
class RunRecord:
    """What `record.json` holds."""

    job_id: str
    # the service and the lease that wrote last: no earlier lease can write any more
    service: ServiceMark
    number: int = 0  # grows with every write
    writer: str = ""  # names the write, so that a write whose answer was lost is recognised
    # by their names in the run directory
    files: Mapping[str, RecordedFile] = field(default_factory=dict)

    def dumps(self) -> bytes:
        return (json.dumps(asdict(self)) + "\n").encode()


_RECORD = TypeAdapter(RunRecord)


def loads(data: bytes, place: str) -> RunRecord:
    """The inverse of `RunRecord.dumps`; raises an `InputError` for what is none."""
    try:
        return _RECORD.validate_json(data)
    except ValidationError as error:
        what = f"not a {RECORD}: {problem_in(error)}"
        raise InputError(what, where={"path": f"{place}/{RECORD}"}) from None
