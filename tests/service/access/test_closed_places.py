"""No job reads what belongs to the service or to other projects, as the product is shipped."""

from pathlib import Path

import pytest
import yaml
from helm_chart import rendered

from distrain.service.access.policy import closed_places, judge, path_problem
from distrain.service.settings import Settings, load_settings

DEPLOY = Path(__file__).parents[3] / "deploy"
FIELDS = ("data.train", "train.init_from", "checkpoint.dir", "data.cache_dir")


def settings_of(shipped, folder):
    if not shipped.startswith("chart"):
        return load_settings(DEPLOY / shipped / "serve.yaml")
    [config] = [
        document["data"]["serve.yaml"]
        for document in rendered(shipped.partition(" ")[2])
        if document["kind"] == "ConfigMap" and "serve.yaml" in document.get("data", {})
    ]
    (folder / "serve.yaml").write_text(config)
    return load_settings(folder / "serve.yaml")


def refused(settings, cluster, field, path):
    section, _, name = field.partition(".")
    document = {"data": {"train": "/nowhere"}, "model": {"kind": "dlrm"}}
    document.setdefault(section, {})[name] = path
    found = judge(settings, closed_places(settings), cluster, "ads", document).mistakes
    at_field = [m for m in found if m.pointer.startswith(f"/{section}/{name}")]
    assert all(m.detail.startswith("the path ") for m in at_field)
    return bool(at_field)


def files_of(settings, cluster):
    """The secrets of a service, as its own configuration names them."""
    profile = settings.clusters[cluster]
    yield settings.data_dir / "service.db"
    yield settings.data_dir / "clusters" / cluster / "state.json"
    if profile.token_file is not None:
        yield profile.token_file


@pytest.mark.parametrize("shipped", ["compose", "systemd", "chart minimal", "chart everything"])
def test_shipped_configurations_close_other_projects_and_secrets(shipped, tmp_path):
    settings = settings_of(shipped, tmp_path)
    for cluster in settings.clusters:
        for other in settings.clusters:
            root = settings.run_place(other)
            for field in FIELDS:
                for path in (f"{root}/web/job-1/checkpoints", f"{root}/*/job-1", root):
                    assert refused(settings, cluster, field, path), (field, path)
        assert not refused(
            settings, cluster, "train.init_from", f"{settings.run_place(cluster)}/ads/job-1"
        )
        for file in files_of(settings, cluster):
            assert refused(settings, cluster, "data.train", str(file))


def test_what_is_closed_is_what_exists_whatever_is_allowed(tmp_path):
    config = tmp_path / "serve.yaml"
    cluster = {"url": "http://h:1", "run_root": "/all/a", "token_file": "/all/t/a.token"}
    config.write_text(
        yaml.safe_dump(
            {
                "data_dir": "/all/service",
                "database_url": "sqlite:////all/db/jobs.db",
                "clusters": {
                    "a": {**cluster, "allowed_roots": ["/all", "/all/a/", "/all/a/shared"]},
                    "b": {**cluster, "run_root": "/all/b"},
                },
            }
        )
    )
    settings = load_settings(config)
    closed = ["/all/b/web/j", "/all/a/web/j", "/all/t/a.token"]
    for path in [*closed, "/all/db/jobs.db", "/all/service/x", "/run/secrets/pg"]:
        assert refused(settings, "a", "data.train", path), path
        assert refused(settings, "b", "data.train", path), path
    for path in ("/all/data", "/all/a/ads/j", "/all/a/shared/model"):
        assert not refused(settings, "a", "data.train", path), path
    # Without roots, no URL that may reach a service inside the network.
    assert refused(settings, "b", "data.train", "http://169.254.169.254/latest")
    assert not refused(settings, "b", "data.train", "s3a://clicks/day_*")


CLOSED = ("/srv/runs", "/etc/d/token", "s3://b/runs", "hdfs://nn:8020/runs", "abfs://box@h/runs")


@pytest.mark.parametrize(
    ("path", "passes"),
    [
        ("/srv//runs/other/[!..]*", False),  # `..` within a name kept a path from being compared
        ("/srv/./runs/other/a..b", False),
        ("/srv", False),  # folders are listed with their subfolders
        ("/srv/*", False),
        ("/etc/d/*", False),
        ("s3://b//runs/x", False),
        ("s3://b", False),
        ("hdfs://nn:8020/./runs/x", False),
        ("hdfs:///runs/x", False),
        ("az://box@h/runs/x", False),
        ("abfs://box/runs/x", False),
        ("/dev/fd/3", False),
        ("/var/run/credentials/x", False),
        ("/srv/data/a..b", True),
        ("/srv/day_*", True),
        ("s3://b/day_*/", True),
        ("hdfs:///data/x", True),
    ],
)
def test_no_spelling_of_a_path_reaches_a_closed_place(path, passes):
    assert (path_problem(path, [], CLOSED) is None) is passes
    if path.startswith("/"):
        assert (path_problem(path, ["/"], CLOSED) is None) is passes


def test_places_behind_links_are_closed_by_each_of_their_names(tmp_path, monkeypatch):
    real, link = tmp_path / "real", tmp_path / "link"
    (real / "runs").mkdir(parents=True)
    link.symlink_to(real)
    (to_runs := tmp_path / "to-runs").symlink_to(real / "runs")
    monkeypatch.chdir(real)
    settings = Settings(
        data_dir=Path("service"),  # of the current folder
        database_url="sqlite:///jobs.db",
        clusters={
            "a": {
                "url": "http://h:1",
                "token_file": "a.token",
                "run_root": link / "runs",
                "allowed_roots": [str(real), str(link), str(to_runs)],
            }
        },
    )
    assert refused(settings, "a", "data.train", f"{to_runs}/web/j")
    for folder in (real, link):
        for name in ("runs/web/j", "service/x", "a.token", "jobs.db", "jobs.db-wal"):
            assert refused(settings, "a", "data.train", f"{folder}/{name}"), name
        assert not refused(settings, "a", "data.train", f"{folder}/data")


def test_a_path_has_a_length_that_can_be_opened():
    # A glob costs time with its length: 60 kB of them took half a second.
    assert path_problem("/data/" + "*a" * 30_000, ["/data"], ["/runs"]) is not None
