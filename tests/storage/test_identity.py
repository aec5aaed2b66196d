"""A file's version, as listings of folders and answers for single files tell it."""

from datetime import UTC, datetime

import pytest

from distrain.storage.identity import version_in

S3_LISTED = {
    "Key": "clicks/0.parquet",
    "LastModified": datetime(2026, 11, 7, 12, 30, 1, 789_000, UTC),  # as MinIO lists it
    "ETag": '"9b2cf535f27731c974343645a3985328"',
    "size": 13,
    "StorageClass": "STANDARD",
}
S3_ASKED = {
    "LastModified": datetime(2026, 11, 7, 12, 30, 1, 0, UTC),  # an HTTP date has whole seconds
    "ETag": '"9b2cf535f27731c974343645a3985328"',
    "size": 13,
    "ContentType": "application/octet-stream",
}
AZURE_LISTED = {"etag": "0x8CBFF45D8A29A19", "size": 13, "last_modified": S3_ASKED["LastModified"]}
AZURE_ASKED = {**AZURE_LISTED, "etag": '"0x8CBFF45D8A29A19"'}
TIME_LISTED = {"size": 13, "LastModified": S3_LISTED["LastModified"]}
TIME_ASKED = {"size": 13, "LastModified": S3_ASKED["LastModified"]}


@pytest.mark.parametrize(
    ("listed", "asked"),
    [(S3_LISTED, S3_ASKED), (AZURE_LISTED, AZURE_ASKED), (TIME_LISTED, TIME_ASKED)],
    ids=["s3", "azure", "time alone"],
)
def test_a_listing_and_an_answer_tell_the_same_version(listed, asked):
    # A command lists the files and hands their versions to ranks, which ask for each.
    assert version_in(listed) == version_in(asked) is not None


@pytest.mark.parametrize("told", [S3_ASKED, AZURE_ASKED, TIME_ASKED])
def test_another_content_is_another_version(told):
    later = {**told, "LastModified": datetime(2026, 11, 7, 12, 30, 2, tzinfo=UTC)}
    if "ETag" in told:
        later["ETag"] = '"0cc175b9c0f1b6a831c399e269772661"'
    if "etag" in told:
        later["etag"] = '"0x8CBFF45D8A29A20"'
    assert version_in(later) != version_in(told)
    assert version_in({**told, "size": 14}) != version_in(told)


def test_who_tells_neither_mark_nor_time_tells_no_version():
    assert version_in({"size": 13, "name": "a"}) is None
