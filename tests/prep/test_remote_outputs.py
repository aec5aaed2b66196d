"""Outputs and staging in an object store: real HTTP, and a network that fails."""

import hashlib
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from distributed import Client
from object_stores import s3fs, serving
from unsteady_proxy import UnsteadyProxy, unsteady
from wording import Wording

from distrain.errors import DataError, InputError, OutputError
from distrain.prep import FeatureConfig, PrepRequest, prepare
from distrain.prep.mapped_files import MappedFile
from distrain.prep.workflow import criteo_workflow
from distrain.schema import Schema
from distrain.storage import prefixes
from distrain.storage.claims import MADE, Claim, read_state
from distrain.storage.inputs import list_inputs
from distrain.storage.outputs import atomic_file, atomic_output, check_output

BLOCK_BYTES = 20_000
BUCKET = "outputs"


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    with serving(BUCKET) as filesystem:
        yield filesystem


@pytest.fixture
def proxy(store: Any) -> Iterator[UnsteadyProxy]:
    """A network between the commands and the store."""
    with unsteady(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        with mock.patch.dict(os.environ, {"AWS_ENDPOINT_URL": proxy.url, "AWS_MAX_ATTEMPTS": "1"}):
            s3fs.S3FileSystem.clear_instance_cache()
            yield proxy
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory, make_lines: Callable[..., list[bytes]]) -> Path:
    file = tmp_path_factory.mktemp("raw") / "raw.tsv"
    file.write_bytes(b"\n".join(make_lines(160)) + b"\n")
    return file


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few columns: a store is asked for each column's files."""
    file = tmp_path_factory.mktemp("table") / "table.csv"
    rows = [f"{n % 3 % 2},shop{n * n % 17},{n / 7:.2f}\n" for n in range(400)]
    file.write_text("bought,shop,price\n" + "".join(rows))
    return file


FEATURES = FeatureConfig.parse(
    {
        "target": "bought",
        "columns": {
            "shop": {"kind": "categorical", "freq_threshold": 30},
            "price": {"kind": "continuous"},
        },
    }
)


def request(source: Any, out: Any, **options: Any) -> PrepRequest:
    if not options.get("saved_workflow") and not options.get("features"):
        options["workflow"] = criteo_workflow(freq_threshold=2)
    settings = {"valid_fraction": 0.2, "block_bytes": BLOCK_BYTES, **options}
    return PrepRequest((str(source),), out, **settings)


def local_digests(folder: Path) -> dict[str, str]:
    """What each file holds, but `prep.json`, which tells seconds and paths."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "prep.json"
    }


def digests(store: Any, prefix: str) -> dict[str, str]:
    store.invalidate_cache()
    return {
        name.removeprefix(f"{prefix}/"): hashlib.sha256(store.cat_file(name)).hexdigest()
        for name in store.find(prefix)
        if name.rpartition("/")[2] not in ("prep.json", ".distrain-output.json")
    }


def without_inputs(found: dict[str, str]) -> dict[str, str]:
    """`workflow.json` names the inputs, which lie elsewhere."""
    return {name: digest for name, digest in found.items() if not name.endswith("workflow.json")}


@pytest.mark.slow
def test_in_and_out_over_a_network_that_fails_give_the_bytes_of_a_local_run(
    store: Any, proxy: UnsteadyProxy, client: Client, raw: Path, tmp_path: Path
) -> None:
    store.put(str(raw), f"{BUCKET}/in/raw.tsv")
    prepare(request(raw, tmp_path / "out"), client)
    with mock.patch.multiple(proxy, reset_every=7, burst=3, burst_every=40):
        prepare(request(f"s3://{BUCKET}/in/raw.tsv", f"s3://{BUCKET}/flaky"), client)
    for fate in ("reset", "cut", "slow down"):
        assert proxy.done[fate] > 2, proxy.done
    found = digests(store, f"{BUCKET}/flaky")
    assert without_inputs(found) == without_inputs(local_digests(tmp_path / "out"))
    assert not [name for name in store.find(f"{BUCKET}/flaky") if "/.unfinished-" in name]


@pytest.mark.slow
def test_local_staging_and_an_update_beside_the_first_output(
    store: Any, client: Client, table: Path, tmp_path: Path, wording: Wording
) -> None:
    out = f"s3://{BUCKET}/days"
    first = request(table, out, features=FEATURES, staging=tmp_path / "staging")
    prepare(first, client)
    prepare(request(table, tmp_path / "days", features=FEATURES), client)
    assert digests(store, f"{BUCKET}/days") == local_digests(tmp_path / "days")
    assert list((tmp_path / "staging").iterdir()) == []
    state, _ = read_state(out)
    assert state is not None
    assert state.files is not None
    assert set(state.files) == set(digests(store, f"{BUCKET}/days")) | {"prep.json"}
    assert len(Schema.load(f"{out}/schema.pbtxt").names) == 3
    for replace_it in (False, True):
        wording.refused(OutputError, partial(check_output, out, replace=replace_it))
    update = request(
        table, f"{out}-two", saved_workflow=f"{out}/workflow", update=True,
        staging=tmp_path / "staging",
    )  # fmt: skip
    remote = prepare(update, client)
    again = request(table, tmp_path / "two", saved_workflow=tmp_path / "days/workflow", update=True)
    local = prepare(again, client)
    assert remote.new_ids == local.new_ids
    found = without_inputs(digests(store, f"{BUCKET}/days-two"))
    assert found == without_inputs(local_digests(tmp_path / "two"))
    wording.refused(InputError, lambda: prepare(request(f"{out}/train", out), client))


def test_who_comes_second_is_told_at_once_and_what_the_killed_left_is_removed(
    store: Any, client: Client, raw: Path, tmp_path: Path
) -> None:
    out = f"s3://{BUCKET}/claimed"
    with atomic_output(out) as place:
        with pytest.raises(OutputError) as caught:
            prepare(request(raw, out, staging=tmp_path), client)
        assert caught.value.where["process"] == str(os.getpid())
        store.pipe_file(f"{place}/a", b"1")
    assert [file.path for file in list_inputs(out)] == [f"{out}/a"]
    out = f"s3://{BUCKET}/left"
    killed = Claim(out, *read_state(out))
    store.pipe_file(f"{out}/.unfinished-{killed.id}/part", b"half")
    killed._ended.set()
    state = killed.state.to_bytes().replace(killed.id.encode(), b"0" * 16)
    state = state.replace(str(killed.state.alive_s).encode(), b"1.0")
    store.pipe_file(f"{out}/.distrain-output.json", state)
    with atomic_output(out) as place:
        assert not store.exists(f"{out}/.unfinished-{killed.id}/part")
        store.pipe_file(f"{place}/b", b"2")
    assert [file.path for file in list_inputs(out)] == [f"{out}/b"]


def test_an_output_that_is_moved_is_refused_and_one_that_failed_leaves_nothing(
    store: Any, client: Client, raw: Path, tmp_path: Path, wording: Wording
) -> None:
    out = f"s3://{BUCKET}/half"
    moved = Claim(out, None, "")
    store.pipe_file(f"{out}/train/part-00000.parquet", b"PAR1")
    moved.has_objects = True
    for path in (f"{out}/train", f"{out}/train/*.parquet", out):
        wording.refused(DataError, partial(list_inputs, path))
    wording.refused(
        DataError,
        lambda: prepare(request(raw, tmp_path / "x", saved_workflow=f"{out}/workflow"), client),
    )
    moved.end()
    bad = tmp_path / "bad.tsv"
    bad.write_bytes(raw.read_bytes() + b"no row\n")
    wording.refused(DataError, lambda: prepare(request(bad, f"s3://{BUCKET}/bad"), client))

    def interrupted() -> None:
        with atomic_output(f"s3://{BUCKET}/bad") as place:
            store.pipe_file(f"{place}/a", b"1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    store.invalidate_cache()
    assert store.find(f"{BUCKET}/bad") == []
    with atomic_output(out):  # what is half is taken over
        pass
    assert store.find(f"{BUCKET}/half/train") == []


def uploads(store: Any) -> list[str]:
    """The objects of which something has arrived, and that are not there yet."""
    found = store.call_s3("list_multipart_uploads", Bucket=BUCKET)
    return [one["Key"] for one in found.get("Uploads", ())]


@pytest.mark.slow
def test_lost_answers_to_an_upload_of_several_parts_leave_one_whole_object(
    store: Any, proxy: UnsteadyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.storage.uploads._PART_BYTES", 5 << 20)
    content = os.urandom(11 << 20)
    # The answers that began it, took a part of it, and completed it.
    proxy.lost += [("POST", "large?uploads"), ("PUT", "partNumber=2"), ("POST", "large?uploadId=")]
    with atomic_output(f"s3://{BUCKET}/parts") as place:
        with atomic_file(f"{place}/large", make_folder=False) as here:
            here.write_bytes(content)
        assert store.cat_file(f"{place}/large") == content
        left = uploads(store)
        assert all(place.partition("://")[2].partition("/")[2] in name for name in left)
        proxy.lost.append(("PUT", "/parts/large"))  # the copy that gives it its name
    assert proxy.done["lost"] == 4
    assert store.cat_file(f"{BUCKET}/parts/large") == content
    assert uploads(store) == []


def test_what_killed_tasks_sent_is_gone_with_the_output_that_is_made(store: Any) -> None:
    out = f"s3://{BUCKET}/late"

    def begin_upload(name: str) -> None:
        store.call_s3("create_multipart_upload", Bucket=BUCKET, Key=f"late/{name}")

    begin_upload("copied")  # by a command that was killed while it moved more than 5 GB
    with atomic_output(out) as place:
        assert uploads(store) == []
        store.pipe_file(f"{place}/a", b"1")
        begin_upload(f"{place.rpartition('/')[2]}/b")
        store.pipe_file(f"{out}/.unfinished-{'0' * 16}/late", b"of a task of a killed command")
    assert uploads(store) == []
    store.invalidate_cache()
    found = {name.partition("/")[2] for name in store.find(f"{BUCKET}/late")}
    assert found == {"late/a", "late/.distrain-output.json"}


def test_a_command_that_woke_up_too_late_leaves_the_output_of_another_alone(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = f"s3://{BUCKET}/woken"

    def make_another(*_: object) -> None:
        state, _ = read_state(out)
        assert state is not None
        made = replace(state, state=MADE, id="1" * 16, files={"b": 1})
        store.pipe_file(f"{out}/b", b"2")
        store.pipe_file(f"{out}/.distrain-output.json", made.to_bytes())

    def sleeping(*arguments: Any) -> None:
        make_another()
        copy(*arguments)

    copy = prefixes._copy
    monkeypatch.setattr(prefixes, "_copy", sleeping)
    with pytest.raises(OutputError, match="another process"), atomic_output(out) as place:
        store.pipe_file(f"{place}/a", b"1")
    store.invalidate_cache()
    found = {name.partition("/")[2] for name in store.find(f"{BUCKET}/woken")}
    assert found == {"woken/b", "woken/.distrain-output.json"}


def test_a_folder_for_temporary_files_without_room_is_named(store: Any, wording: Wording) -> None:
    url = f"s3://{BUCKET}/counts/large"
    store.pipe_file(url, bytes(100_000))
    with small_files(10_000):
        wording.refused(OutputError, lambda: MappedFile.staged(url), path=url)
        too_large = pytest.raises(OutputError, match="File too large")
        with too_large, atomic_file(url) as here:
            here.write_bytes(bytes(100_000))
    assert store.cat_file(url) == bytes(100_000)


@contextmanager
def small_files(most_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond a size, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
