"""What `serve.yaml`, the environment and options make of the service's settings."""

import re
from pathlib import Path

import pytest

from distrain.errors import InputError
from distrain.service.settings import Limits, Listen, Retention, load_settings

WORKERS = "workload: statefulset/a, max_workers: 2"
KUBERNETES = (
    "clusters: {{a: {{kind: kubernetes, url: 'http://h:1', run_root: /r, kubernetes: {{{}}}}}}}"
)


def written(folder: Path, text: str) -> Path:
    file = folder / "serve.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("listen", "same_machine", "elsewhere"),
    [
        ({}, "http://127.0.0.1:8686", None),
        ({"port": 0}, None, None),
        ({"host": "0.0.0.0", "insecure": True}, None, None),
        ({"host": "::", "insecure": True}, None, None),
        ({"host": "10.0.0.5", "insecure": True}, *["http://10.0.0.5:8686"] * 2),
        ({"unix_socket": "/s"}, None, None),
        (
            {"unix_socket": "/s", "public_url": "https://jobs.example/"},
            *["https://jobs.example"] * 2,
        ),
    ],
)
def test_schedulers_link_to_the_service_if_readers_can_open_it(listen, same_machine, elsewhere):
    found = Listen(**listen)
    assert found.link_url(same_machine=True) == same_machine
    assert found.link_url(same_machine=False) == elsewhere


def test_options_come_before_the_environment_and_that_before_the_file(tmp_path, monkeypatch):
    file = written(tmp_path, "listen: {port: 1, host: '::1'}\nlimits: {tags: 3}\n")
    monkeypatch.setenv("DISTRAIN_SERVE_LISTEN__PORT", "2")
    assert load_settings(file).listen.port == 2
    settings = load_settings(file, listen={"port": 3})
    assert (settings.listen.port, settings.listen.host, settings.limits.tags) == (3, "::1", 3)


def test_paths_of_the_file_are_those_of_its_folder(tmp_path):
    text = "data_dir: data\nclusters: {a: {url: 'http://h:1', token_file: t, run_root: /runs}}\n"
    settings = load_settings(written(tmp_path, text))
    assert settings.data_dir == tmp_path / "data"
    assert settings.clusters["a"].token_file == tmp_path / "t"
    assert settings.run_root("a") == Path("/runs")


def test_the_data_folder_is_absolute_wherever_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_settings(data_dir=Path("data")).data_dir == tmp_path / "data"
    monkeypatch.setenv("DISTRAIN_SERVE_DATA_DIR", "data")
    assert load_settings().run_place("local") == str(tmp_path / "data" / "runs")


def test_the_data_folder_is_below_the_users_folder_of_data(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "relative, so ignored")
    assert load_settings().data_dir == tmp_path / ".local/share/distrain/serve"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    assert load_settings().data_dir == tmp_path / "own/distrain/serve"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("retension: {jobs_days: 1}", "retention"),
        ("listen: {prot: 1}", "port"),
        ("clusters: {a: {url: 'http://h:1', run_rot: /runs}}", "run_root"),
        ("jobs_days: 1", "retention.jobs_days"),
    ],
)
def test_an_unknown_key_is_refused_with_the_most_similar_one(tmp_path, text, key):
    with pytest.raises(InputError, match=f"'{re.escape(key)}'"):
        load_settings(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "replacement"),
    [
        ("listen: {tls: {ca_file: ca.pem}}", "listen.tls.ca_file: this key was removed: use"),
        ("api_processes: 2", "api_processes: this key was removed: run `distrain serve api`"),
        ("clusters: {a: {kind: slurm, slurm: {partition: p}}}", "clusters.a.slurm: this key was"),
        ("clusters: {a: {kind: slurm}}", "the kind `slurm` was removed: see A cluster for the"),
    ],
)
def test_a_key_of_an_earlier_version_is_refused_with_its_replacement(tmp_path, text, replacement):
    with pytest.raises(InputError, match=re.escape(replacement)) as refused:
        load_settings(written(tmp_path, text))
    assert "did you mean" not in str(refused.value)


def test_a_home_of_nobody_is_refused(tmp_path, monkeypatch):
    with pytest.raises(InputError):
        load_settings(written(tmp_path, "data_dir: ~no-such-user/x\n"))
    monkeypatch.setenv("DISTRAIN_SERVE_DATA_DIR", "~no-such-user/x")
    with pytest.raises(InputError):
        load_settings()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("listen: {host: 0.0.0.0}", "listen"),
        ("listen: {tls: {cert_file: c.pem}}", "listen.tls"),
        ("listen: {prot: 1}", "listen.prot"),
        ("listen: {host: 0.0.0.0}\nlimits: {x: 1}\n", "limits.x"),  # all mistakes are told
        ("clusters: {a: {kind: address}}", "clusters.a"),
        ("clusters: {a: {url: 'tcp://h:1'}}", "clusters.a"),
        ("clusters: {a: {url: 'http://u:p@h:1'}}", "clusters.a"),
        ("clusters: {a: {kind: slurm}}", "clusters.a.kind"),  # of an earlier version
        ("clusters: {a: {kind: local, url: 'http://h:1'}}", "clusters.a"),
        (KUBERNETES.format("workload: pod/a, max_workers: 1"), "clusters.a.kubernetes"),
        (KUBERNETES.format("workload: statefulset/A, max_workers: 1"), "clusters.a.kubernetes"),
        (KUBERNETES.format("workload: statefulset/a"), "clusters.a.kubernetes.max_workers"),
        (KUBERNETES.format(f"{WORKERS}, replicas: 1"), "clusters.a.kubernetes.replicas"),
        (KUBERNETES.format(f"{WORKERS}, min_workers: 3"), "clusters.a.kubernetes"),
        (KUBERNETES.format(f"{WORKERS}, api_url: 'https://k:1'"), "clusters.a.kubernetes"),
        (KUBERNETES.format(f"{WORKERS}, namespace: n, api_url: 'https://k'"), "clusters.a"),
        (KUBERNETES.format(f"{WORKERS}, namespace: A_"), "clusters.a.kubernetes.namespace"),
        (KUBERNETES.format(f"{WORKERS}}}, num_workers: 2, environment: {{"), "clusters.a"),
        ("clusters: {a: {kind: kubernetes, url: 'http://h:1', run_root: /r}}", "clusters.a"),
        ("clusters: {a: {kind: kubernetes, kubernetes: {workload: deployment/a}}}", "clusters.a"),
        ("sign_on: {}", ""),
        ("listen: {tls: {ca_file: ca.pem}}", "listen.tls.ca_file"),  # of an earlier version
        ("leases: {ttl_s: 5}", "leases"),  # of an earlier version
        ("limits: {reads_per_s: 50}", "limits.reads_per_s"),
        ("[1]", ""),
        ("a: [", ""),
        (None, ""),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(tmp_path, text, place):
    file = tmp_path / "serve.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError) as refused:
        load_settings(file)
    assert str(file) in str(refused.value)
    assert place in str(refused.value)


def test_workers_in_kubernetes(tmp_path):
    text = KUBERNETES.format(
        f"{WORKERS}, token_file: t, api_url: 'http://127.0.0.1:8001', namespace: n"
    )
    section = load_settings(written(tmp_path, text)).clusters["a"].kubernetes
    assert section.token_file == tmp_path / "t"
    assert section.resource == ("apps", "v1", "statefulsets", "a")
    named = section.model_copy(
        update={"workload": "daskworkergroups.v1.kubernetes.dask.org/b-default"}
    )
    assert named.resource == ("kubernetes.dask.org", "v1", "daskworkergroups", "b-default")


@pytest.mark.parametrize(
    "listen",
    [
        {"host": "0.0.0.0", "insecure": True},
        {"host": "0.0.0.0", "tls": {"cert_file": "/c", "key_file": "/k"}},
        {"host": "0.0.0.0", "unix_socket": "/run/d.sock"},
        {"host": "::1"},
    ],
)
def test_guarded_places_to_listen(listen):
    assert load_settings(None, listen=listen).listen.url


def test_a_variable_that_is_no_json_is_named(monkeypatch):
    monkeypatch.setenv("DISTRAIN_SERVE_CLUSTERS", "{")
    with pytest.raises(InputError, match="DISTRAIN_SERVE"):
        load_settings()


def test_no_number_of_the_settings_may_be_negative(tmp_path):
    # Below zero, a time in days makes retention take all there is.
    places = [("limits", f) for f in Limits.model_fields]
    places += [("retention", f) for f in Retention.model_fields]
    for section, field in places:
        for value in ("-1", ".nan", ".inf"):
            with pytest.raises(InputError) as caught:
                load_settings(written(tmp_path, f"{section}: {{{field}: {value}}}\n"))
            assert f"{section}.{field}" in caught.value.message
    assert load_settings(written(tmp_path, "retention: {jobs_days: 0}\n")).retention.jobs_days == 0
