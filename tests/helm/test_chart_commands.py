"""What the pods run, read by the commands themselves."""

import ast
from pathlib import Path

import click
import pytest
from distributed.cli.dask_scheduler import main as dask_scheduler
from distributed.cli.dask_worker import main as dask_worker
from helm_chart import DASK_CUDA, NAMES, containers, find, pods, rendered, template

from distrain.cli.main import cli as distrain
from distrain.service.settings import load_settings


def parsed(command, words):
    """A command's context, with its options read and nothing run."""
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        _, found, rest = command.resolve_command(click.Context(command), list(words))
        if found is not None:
            return parsed(found, rest)
    return command.make_context(command.name, list(words))


def cuda_options():
    """The options of `dask cuda worker`, out of its source: it wants a GPU's libraries."""
    if not DASK_CUDA.exists():
        pytest.skip("needs the options of dask-cuda: `make .venv/.helm`")
    tree = ast.parse(DASK_CUDA.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [word.value for call in calls if ast.unparse(call.func) == "click.option"
             for word in call.args if isinstance(word, ast.Constant)]  # fmt: skip
    return {part for name in names for part in str(name).split("/")}


@pytest.mark.parametrize("name", NAMES)
def test_all_arguments_are_those_of_the_commands(name):
    for part, pod in pods(rendered(name)).items():
        for container in containers(pod):
            command, words = container["command"], container["args"]
            assert command[:2] == ["tini", "--"]
            if command[2:] == ["distrain"]:
                assert parsed(distrain, words).params["config"] == Path("/etc/distrain/serve.yaml")
            elif words[:2] == ["dask", "scheduler"]:
                assert parsed(dask_scheduler, words[2:]).params["preload"] == ("distrain.preload",)
            elif words[:2] == ["dask", "worker"]:
                address = parsed(dask_worker, words[2:]).params["scheduler"]
                assert address == "tls://r-distrain-scheduler.clicks.svc:8786"
            else:
                assert words[:3] == ["dask", "cuda", "worker"], part
                given = {word.partition("=")[0] for word in words[4:]}
                assert given <= cuda_options()


def test_a_wrong_argument_is_none_of_the_commands():
    with pytest.raises(click.NoSuchOption):
        parsed(distrain, ["serve", "api", "--replicas=2"])
    assert "--nanny-port" not in cuda_options()


def settings_of(objects, folder):
    file = folder / "serve.yaml"
    file.write_text(find(objects, "ConfigMap", "-service")["data"]["serve.yaml"])
    return load_settings(file)


@pytest.mark.parametrize("name", NAMES)
def test_the_service_takes_its_configuration(name, tmp_path):
    objects = rendered(name)
    settings = settings_of(objects, tmp_path)
    assert settings.listen.tls.cert_file
    assert settings.data_dir == Path("/var/lib/distrain/serve")
    for profile in settings.clusters.values():
        assert profile.token_file
    # Every file that it names is mounted, in every container of the service.
    files = [settings.listen.tls.cert_file, settings.listen.tls.key_file, settings.secrets_file]
    for profile in settings.clusters.values():
        files += [profile.token_file, profile.tls.ca_file]
    for part in {"service", "api", "reconciler"} & set(pods(objects)):
        pod = pods(objects)[part]
        for container in containers(pod):
            for file in filter(None, files):
                assert file in mounted(pod, container), f"{part}: {file}"


def mounted(pod, container):
    """The files from Secrets in a container."""
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    found = set()
    for mount in container["volumeMounts"]:
        volume = volumes[mount["name"]]
        sources = [volume.get("secret", {})]
        sources += [each["secret"] for each in volume.get("projected", {}).get("sources", ())]
        items = [item["path"] for source in sources for item in source.get("items", ())]
        if mount["name"] in ("token", "key"):
            items = ["token" if mount["name"] == "token" else "service.key"]
        found |= {Path(mount["mountPath"]) / item for item in items}
    return found


def test_the_clusters_that_the_service_gets(tmp_path):
    [main] = settings_of(rendered("minimal"), tmp_path).clusters.items()
    assert main[0] == "main"
    assert (main[1].kind, main[1].url) == (
        "address",
        "https://r-distrain-scheduler.clicks.svc:8787",
    )
    assert main[1].allowed_roots == ("/srv/distrain/runs",)  # none would allow all paths
    scaled = settings_of(rendered("operator"), tmp_path).clusters["main"]
    assert scaled.idle_stop_s == 900  # without it no worker ever goes
    assert scaled.kind == "kubernetes"
    assert scaled.kubernetes.workload == "daskworkergroup/r-distrain-default"
    assert (scaled.kubernetes.min_workers, scaled.kubernetes.max_workers) == (1, 16)
    outside = settings_of(rendered("external"), tmp_path).clusters
    assert set(outside) == {"gpu-a", "gpu-b"}
    everything = settings_of(rendered("everything"), tmp_path)
    assert everything.clusters["gpu"].kubernetes.workload == "statefulset/clicks-worker"
    assert everything.clusters["gpu"].allowed_roots == ("s3://clicks/", "/data")
    in_bucket = settings_of(rendered("argocd"), tmp_path).clusters["main"]
    assert (in_bucket.run_root, in_bucket.allowed_roots) == ("s3://clicks/runs", ("s3://clicks/",))
    assert everything.listen.public_url == "https://jobs.example.com"
    assert everything.limits.submits_per_s == 5


def test_several_pods_share_database_and_key():
    objects = rendered("postgres")
    for part in ("api", "reconciler"):
        for container in containers(pods(objects)[part]):
            [url] = [each for each in container["env"] if each["name"].endswith("DATABASE_URL")]
            assert url["valueFrom"]["secretKeyRef"]["name"] == "distrain-database"
    [first, *_] = containers(pods(objects)["api"])
    assert first["args"][:2] == ["serve", "migrate"]


def test_a_change_of_the_configuration_starts_pods_anew():
    def checksum(name):
        return pods(rendered(name))["service"]["metadata"]["annotations"]["checksum/serve.yaml"]

    assert checksum("minimal") != checksum("tls-cert-manager")


def test_a_certificate_of_other_names_starts_the_api_anew():
    plain = pods(rendered("minimal"))
    other = pods(template("--set", "tls.apiNames={jobs.example.com}"))
    changed = {part for part, pod in plain.items() if pod["metadata"] != other[part]["metadata"]}
    assert changed == {"service"}
