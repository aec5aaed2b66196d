"""The upload of what a rank leaves on its worker to an S3 bucket."""

import pytest
from object_stores import serving

from distrain.jobs.run_paths import RunPaths
from distrain.runs.stored.folder import StoredFolder
from distrain.workers import rank_upload as upload_module
from distrain.workers.rank_log import BoundedLog
from distrain.workers.rank_upload import RankUpload, files_dir


@pytest.fixture(scope="module")
def server():
    with serving("carried") as filesystem:
        yield filesystem


@pytest.fixture
def paths(server, tmp_path, request):
    return RunPaths(files_dir(str(tmp_path), "job", 1, 0), f"s3://carried/{request.node.name}")


LOG = "logs/attempt-1/rank-0.log"


def test_a_log_keeps_the_numbers_of_its_bytes(paths, monkeypatch):
    monkeypatch.setattr(upload_module, "PART_BYTES", 10)
    log, upload = BoundedLog(paths.log(0, 1), kept_bytes=30), RankUpload(paths, 0, 1)
    printed = bytes(range(65, 90))
    log.write(printed[:4])
    assert upload.upload_new()
    log.write(printed[4:])
    assert upload.upload_new()
    assert upload.upload_new()
    folder = StoredFolder(paths.store)
    parts = {file.name: file.size_bytes for file in folder.files("logs")}
    assert parts == {LOG: 10, f"{LOG}.from-10": 10, f"{LOG}.from-20": 5}
    pieces = [folder.read_growing(LOG, offset, 100) for offset in (3, 10, 20)]
    assert pieces == [printed[3:10], printed[10:20], printed[20:]]
    log.close()
    upload.start()
    upload.close(60)
    assert folder.read_growing(f"{LOG}.end", 0, 100) == b"25\n"
    assert not paths.root.exists()


def test_what_nobody_kept_is_a_gap_in_the_bucket_too(paths):
    upload = RankUpload(paths, 0, 1)
    log = BoundedLog(paths.log(0, 1))
    log.write(b"begin")
    log._leave_out(100)
    log.write(b"end")
    log.close()
    assert upload.upload_new()
    folder = StoredFolder(paths.store)
    pieces = [folder.read_growing(LOG, offset, 100) for offset in (0, 5, 104, 105)]
    assert pieces == [b"begin", b"", b"", b"end"]
    assert folder.read_growing(f"{LOG}.end", 0, 100) == b"108\n"


def test_a_store_that_does_not_answer_is_asked_again(paths):
    upload = RankUpload(paths, 0, 1)
    log = BoundedLog(paths.log(0, 1))
    log.write(b"one")
    objects, put = upload._store(), upload._store().put

    def away(*_):
        raise OSError("no answer")

    objects.put = away
    assert not upload.upload_new()
    objects.put = put
    log.write(b"two")
    paths.records.mkdir()
    paths.attempt_records(1).write_bytes(b"records")
    log.close()
    assert upload.upload_new()
    folder = StoredFolder(paths.store)
    assert folder.read_growing(LOG, 0, 100) == b"onetwo"
    assert folder.read_growing("records/attempt-1.jsonl", 3, 9) == b"ords"


def test_hashes_come_at_the_end(paths):
    path = paths.audit(0, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"content")
    upload = RankUpload(paths, 0, 1)
    upload.start()
    upload.close(60)
    folder = StoredFolder(paths.store)
    assert [file.name for file in folder.files()] == ["audit/attempt-1/rank-0.rows"]
    assert not paths.root.exists()
