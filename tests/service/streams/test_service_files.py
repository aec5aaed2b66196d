"""Files and metrics of jobs over HTTP."""

import socket

import pytest
from kept_runs import write_records
from live_service import LiveService

from distrain.runs.run_folder import DescriptorReader
from distrain.service.values import Job

CONTENT = bytes(n % 256 for n in range(5000))


@pytest.fixture(scope="module")
def job(service: LiveService) -> Job:
    job = service.job()
    paths = service.paths(job)
    paths.model.mkdir()
    (paths.model / "weights.bin").write_bytes(CONTENT)
    (paths.root / "empty").touch()
    (paths.root / "report.html").write_text("<script>alert(1)</script>")
    (paths.root / "naïve name.txt").write_text("text")
    (service.folder / "secret").write_text("password")
    (paths.root / "link").symlink_to(service.folder / "secret")
    (paths.root / "out").symlink_to(service.folder)
    return job


def path_of(job: Job, name: str = "") -> str:
    return f"/v1/jobs/{job.id}/artifacts" + (f"/{name}" if name else "")


def test_the_listing_has_the_files_and_no_links(alice, job) -> None:
    found = alice.get(path_of(job)).json()
    assert [(file["name"], file["size_bytes"]) for file in found["artifacts"]] == [
        ("empty", 0),
        ("model/weights.bin", len(CONTENT)),
        ("naïve name.txt", 4),
        ("report.html", 25),
    ]
    assert found["next_cursor"] is None
    first = alice.get(path_of(job), params={"limit": 2}).json()
    assert first["next_cursor"] == "model/weights.bin"
    rest = alice.get(path_of(job), params={"after": first["next_cursor"]}).json()
    assert first["artifacts"] + rest["artifacts"] == found["artifacts"]
    inside = alice.get(path_of(job), params={"below": "model"}).json()["artifacts"]
    assert [file["name"] for file in inside] == ["model/weights.bin"]
    for missing in ("out", "logs/attempt-9"):  # a link, and a folder that is not there yet
        found = alice.get(path_of(job), params={"below": missing}).json()
        assert found["artifacts"] == []


def test_a_link_in_place_of_the_projects_folder_is_not_followed(service, alice) -> None:
    # Code of a job may replace RUN_ROOT/PROJECT, and the submitter chooses the last folder's name.
    root = service.folder / "root"
    root.mkdir()
    kept = service.job(run_dir=str(root / "default" / "secrets"))
    (service.folder / "elsewhere" / "secrets" / "records").mkdir(parents=True)
    (service.folder / "elsewhere" / "secrets" / "token").write_text("password")
    (root / "default").symlink_to(service.folder / "elsewhere")
    assert alice.get(path_of(kept)).json()["artifacts"] == []
    assert alice.get(path_of(kept, "token")).status_code == 404
    assert alice.get(f"/v1/jobs/{kept.id}/metrics").json()["records"] == []
    (root / "default").unlink()
    (service.folder / "elsewhere").rename(root / "default")
    assert alice.get(path_of(kept, "token")).text == "password"


def test_ranges_are_slices(alice, job) -> None:
    size = len(CONTENT)
    for header, wanted in (
        ("bytes=0-", CONTENT),
        ("bytes=10-19", CONTENT[10:20]),
        (f"bytes={size - 1}-9999", CONTENT[-1:]),
        (f"bytes={size}-", b""),
    ):
        answer = alice.get(path_of(job, "model/weights.bin"), headers={"Range": header})
        place = "*"
        if wanted:
            first = int(header[6:].partition("-")[0])
            place = f"{first}-{first + len(wanted) - 1}"
            assert answer.content == wanted
        assert answer.status_code == (206 if wanted else 416)
        assert answer.headers["Content-Range"] == f"bytes {place}/{size}"


def test_a_file_is_read_to_its_end_or_is_not_there(alice, job, monkeypatch) -> None:
    path, pread = path_of(job, "model/weights.bin"), DescriptorReader.pread
    monkeypatch.setattr(
        DescriptorReader, "pread", lambda file, size, first: pread(file, min(size, 999), first)
    )
    assert alice.get(path).content == CONTENT

    def deleted(file: DescriptorReader, *_: int) -> bytes:
        raise FileNotFoundError(2, "No such object", file.name)

    monkeypatch.setattr(DescriptorReader, "pread", deleted)
    assert alice.get(path).status_code == 404


def test_the_etag_decides_what_is_sent(service, alice, job) -> None:
    path = path_of(job, "model/weights.bin")
    whole = alice.get(path)
    etag = whole.headers["ETag"]
    assert (whole.content, whole.headers["Accept-Ranges"]) == (CONTENT, "bytes")
    assert alice.get(path, headers={"If-None-Match": f'"x", W/{etag}'}).status_code == 304
    some = alice.get(path, headers={"Range": "bytes=10-19", "If-Range": etag})
    assert (some.status_code, some.content) == (206, CONTENT[10:20])
    other = alice.get(path, headers={"Range": "bytes=10-19", "If-Range": '"other"'})
    assert (other.status_code, other.content) == (200, CONTENT)
    head = alice.head(path, headers={"Range": "bytes=10-19"})
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Length"] == str(len(CONTENT))
    growing = service.paths(job).root / "grows.log"
    growing.write_bytes(b"a")
    before = alice.get(path_of(job, "grows.log")).headers["ETag"]
    growing.write_bytes(b"ab")
    assert alice.get(path_of(job, "grows.log")).headers["ETag"] != before
    growing.unlink()


def test_a_browser_runs_nothing_that_a_job_wrote(alice, job) -> None:
    page = alice.get(path_of(job, "report.html"))
    assert page.headers["Content-Disposition"] == "inline; filename*=UTF-8''report.html"
    for name in ("report.html", "naïve name.txt", "model/weights.bin"):
        headers = alice.get(path_of(job, name)).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        policy, _, more = headers["Content-Security-Policy"].partition("; img-src")
        assert policy == "sandbox; default-src 'none'"
        assert more == (" data:; style-src 'unsafe-inline'" if name == "report.html" else "")
    text = alice.get(path_of(job, "naïve name.txt"))
    assert text.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "na%C3%AFve%20name.txt" in text.headers["Content-Disposition"]


@pytest.mark.parametrize(
    "name",
    ["link", "out/secret", "../secret", "%2e%2e/secret", "model/%2e%2e/%2e%2e/secret", "model",
     "/etc/passwd", "%2fetc/passwd", "model//weights.bin", "nothing", "empty/x", "%00",
     "..%2fsecret", "a" * 300],
)  # fmt: skip
def test_nothing_else_can_be_read(alice, job, name) -> None:
    answer = alice.get(f"{path_of(job)}/{name}")
    assert answer.status_code in (400, 404)
    assert "password" not in answer.text


def test_a_job_without_a_run_directory_has_no_files_yet(service, alice) -> None:
    job = service.job(run_dir=str(service.folder / "absent"))
    assert alice.get(path_of(job)).json() == {"artifacts": [], "next_cursor": None}
    assert alice.get(path_of(job, "spec.yaml")).status_code == 404
    assert alice.get(f"/v1/jobs/{job.id}/metrics").json()["records"] == []


def test_metrics_are_read_on_from_a_cursor(service, alice, job) -> None:
    path, paths = f"/v1/jobs/{job.id}/metrics", service.paths(job)
    records = [{"split": split, "step": step} for step in range(5) for split in ("train", "valid")]
    write_records(paths, records)
    first = alice.get(path).json()
    assert (first["records"], first["restart"], first["more"]) == (records, True, False)
    some = alice.get(path, params={"fields": ["step", "loss"]}).json()["records"]
    assert some == [{"step": record["step"]} for record in records]
    write_records(paths, [{"split": "train", "step": 9}])
    second = alice.get(path, params={"since": first["cursor"]}).json()
    assert (second["records"], second["restart"]) == ([{"split": "train", "step": 9}], False)
    write_records(paths, [{"split": "train", "step": 2}], attempt=2, begin=0)
    third = alice.get(path, params={"since": second["cursor"]}).json()
    kept = [{"split": split, "step": 0} for split in ("train", "valid")]
    assert third["records"] == [*kept, {"split": "train", "step": 2}]
    assert third["restart"] is True
    assert alice.get(path, params={"since": "nonsense"}).status_code == 400


@pytest.mark.slow
def test_a_bucket_that_does_not_answer_is_503(service, alice, monkeypatch) -> None:
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    s3fs.S3FileSystem.clear_instance_cache()  # one that was made earlier asks another endpoint
    with socket.socket() as unheard:  # bound, and nobody listens
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
        job = service.job(run_dir="s3://gone/runs/a")
        for path in ("artifacts", "artifacts/model.json", "metrics"):
            answer = alice.get(f"/v1/jobs/{job.id}/{path}")
            assert answer.status_code == 503, (path, answer.text)
            assert (answer.json()["code"], "retry-after" in answer.headers) == ("unavailable", True)
    s3fs.S3FileSystem.clear_instance_cache()
