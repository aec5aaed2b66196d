"""The target `cpu`, built on a Debian of this test's own, and run as compose.yaml runs it.

It takes minutes and gigabytes, so it runs where DISTRAIN_TEST_IMAGES is set: to 1, or to a folder
that keeps the base and the layers for the next time. It needs no container engine: buildah builds
in a chroot, and the image runs in namespaces that end with the command.
"""

import configparser
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WANTED = os.environ.get("DISTRAIN_TEST_IMAGES", "")
MIRROR = os.environ.get("DISTRAIN_TEST_MIRROR", "http://deb.debian.org/debian")
RELEASE = "bookworm"
BASE = f"localhost/debian:{RELEASE}"
IMAGE = "localhost/distrain:cpu"
ROOTED = """
root=$1; shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=0755 dev "$root/dev"
for name in null zero random urandom; do
    : >"$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/shm"; mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs -o mode=0700,uid=10001,gid=10001 work "$root/work"
mount -o remount,bind,ro "$root"
exec chroot --userspec=10001:10001 "$root" env -i "$@"
"""

pytestmark = [
    pytest.mark.release,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not WANTED, reason="minutes and gigabytes: set DISTRAIN_TEST_IMAGES=1"),
]


def why_not():
    """Why no image can be built here; `None` where one can."""
    for program in ("buildah", "debootstrap", "unshare"):
        if shutil.which(program) is None:
            return f"no {program} here: apt-get install buildah debootstrap util-linux"
    if os.geteuid() != 0:
        return "a chroot needs root"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True)
    return None if tried.returncode == 0 else "this machine lets nobody make namespaces"


def run(*words, check=True, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if check and done.returncode != 0:
        pytest.fail(f"{words}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


class Builder:
    """buildah with a storage of its own."""

    def __init__(self, folder):
        self.folder = folder
        self._words = ["buildah", "--root", folder / "store", "--runroot", folder / "run"]

    def __call__(self, *words, **options):
        return run(*self._words, *words, **options)

    def make_base(self):
        if self("inspect", "--type", "image", BASE, check=False).returncode == 0:
            return
        rootfs = self.folder / "base"
        shutil.rmtree(rootfs, ignore_errors=True)
        made = run("debootstrap", "--variant=minbase", RELEASE, rootfs, MIRROR, check=False)
        if made.returncode != 0:
            pytest.skip(f"no Debian could be made of {MIRROR}: {made.stdout[-300:]}")
        container = self("from", "scratch").stdout.strip()
        self("add", "--quiet", container, rootfs, "/")
        self("commit", "--quiet", "--rm", container, BASE)
        shutil.rmtree(rootfs)

    def build(self):
        """Build the target with this machine's way to packages, which the image does not see."""
        options, mounts = pip_options(self.folder / "pip.conf")
        torch = "https://download.pytorch.org/whl/cpu" if "find-links" not in options else ""
        self(
            *("build-using-dockerfile", "--isolation", "chroot", "--network", "host", "--layers"),
            *("--format", "docker", "--pull-never", "--target", "cpu", "--tag", IMAGE),
            *("--file", ROOT / "deploy" / "images" / "Containerfile"),
            *("--secret", f"id=pip.conf,src={self.folder / 'pip.conf'}"),
            *[word for mount in mounts for word in ("--volume", mount)],
            *("--build-arg", f"BASE={BASE}", "--build-arg", f"TORCH_INDEX={torch}"),
            *("--build-arg", "VERSION=1.2.3", ROOT),
        )


def pip_options(file):
    """This machine's options of pip as a file, and the files that they name as volumes."""
    listed = run(sys.executable, "-m", "pip", "config", "list").stdout
    options = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        options[name.rpartition(".")[2]] = value.strip("'").replace("\\n", "\n")
    mounts = set()
    for word in " ".join(options.values()).split():
        path = Path(word.removeprefix("file://"))
        if path.is_absolute() and path.exists():  # packages, or constraints
            mounts |= {f"{path}:{path}:ro"}
            if (files := path.parent / "files").is_dir():  # what an index of files points to
                mounts |= {f"{files}:{files}:ro"}
    if "cert" in options:
        mounts |= {f"{options['cert']}:/run/authorities.pem:ro"}
        options["cert"] = "/run/authorities.pem"
    config = configparser.RawConfigParser()
    config["global"] = options
    with file.open("w") as out:
        config.write(out)
    return options, sorted(mounts)


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The image's configuration, and a call that runs a command in it."""
    if reason := why_not():
        pytest.skip(reason)
    kept = Path(WANTED) if Path(WANTED).is_absolute() else None
    folder = kept or tmp_path_factory.mktemp("image")
    builder = Builder(folder)
    container = None
    try:
        builder.make_base()
        builder.build()
        container = builder("from", "--pull-never", IMAGE).stdout.strip()
        rootfs = builder("mount", container).stdout.strip()
        config = json.loads(builder("inspect", container).stdout)["Docker"]["config"]

        def in_image(*words, check=True):
            command = ["-C", config["WorkingDir"], *config["Env"], *words]
            namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
            return run(*namespaces, "sh", "-euc", ROOTED, "sh", rootfs, *command, check=check)

        yield config, in_image
    finally:
        if container:
            builder("umount", container, check=False)
            builder("rm", container, check=False)
        if kept is None:
            builder("rmi", "--all", "--force", check=False)
        run("umount", folder / "store" / "overlay", check=False)
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)


def test_the_image_is_confined_and_runs(image):
    config, in_image = image
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["tini", "--", "distrain"]
    assert config["Healthcheck"]["Test"] == ["CMD", "healthy"]
    assert config["Labels"]["org.opencontainers.image.version"] == "1.2.3"
    assert in_image("id", "-u").stdout == "10001\n"
    assert in_image("touch", "/home/distrain/x", check=False).returncode != 0
    for tool in ("gcc", "cc", "pip", "pip3"):
        assert in_image("sh", "-c", f"command -v {tool}", check=False).returncode != 0, tool
    # No host of this machine is in it.
    assert in_image("cat", "/etc/pip.conf", "/run/authorities.pem", check=False).stdout == ""
    listed = json.loads(in_image("cat", "/opt/distrain/share/sbom/python.cdx.json").stdout)
    versions = {one["name"].lower(): one["version"] for one in listed["components"]}
    asked = in_image("python", "-c", "import torch; print(torch.__version__)").stdout.strip()
    assert versions["torch"] == asked
    told = in_image(*config["Entrypoint"], "doctor").stdout
    assert "loader kernel          built" in told
    assert "fail " not in told
    words = ["demo", "--rows", "20k", "--ranks", "1", "--out", "/work/demo"]
    assert "this one reached" in in_image(*config["Entrypoint"], *words).stdout


def test_the_service_is_healthy_and_ends_in_order(image):
    """The image's own command under its own health check, ended by its signal."""
    config, in_image = image
    script = """
        export DISTRAIN_SERVE_DATA_DIR=/work/service
        "$@" --no-cluster & service=$!
        until healthy; do kill -0 $service; sleep 0.2; done
        kill -TERM $service
        wait $service
    """
    words = [*config["Entrypoint"], *config["Cmd"]]
    in_image("timeout", "300", "sh", "-euc", script, "sh", *words)
