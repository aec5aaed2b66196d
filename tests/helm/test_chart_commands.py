"""What the pods run, read by the commands themselves."""

from pathlib import Path

import click
import pytest
from distributed.cli.dask_scheduler import main as dask_scheduler
from distributed.cli.dask_worker import main as dask_worker
from helm_chart import NAMES, containers, cuda_options, find, pods, rendered, template

from distrain.cli.main import cli as distrain
from distrain.service.settings import load_settings


def parsed(command, words):
    """A command's context, with its options read and nothing run."""
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        _, found, rest = command.resolve_command(click.Context(command), list(words))
        if found is not None:
            return parsed(found, rest)
    return command.make_context(command.name, list(words))


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
    files = [settings.listen.tls.cert_file, settings.listen.tls.key_file]
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
        if mount["name"] == "token":
            items = ["token"]
        found |= {Path(mount["mountPath"]) / item for item in items}
    return found


def test_a_change_of_configuration_or_certificate_starts_the_service_anew():
    def notes(*words):
        found = pods(template(*words))
        return {part: pod["metadata"].get("annotations") for part, pod in found.items()}

    plain = notes()
    for change in ("limits.tags=7", "tls.apiNames={jobs.example.com}"):
        other = notes("--set", f"service.{change}" if "limits" in change else change)
        assert {part for part in plain if plain[part] != other[part]} == {"service"}, change
