"""Pods of the rendered chart as processes: own network, names, files from Secrets and claims.

What is left out: images, other users than this one, and read-only roots.
"""

import base64
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from helm_chart import NAMESPACE, Object, containers, find, pods

SUBNET = "10.213.58"
_OWN = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")


def _hold(*words: str) -> "subprocess.Popen[bytes]":
    """A process in namespaces of its own, in which a command has been run."""
    *namespaces, script = words
    script = f"{script} && echo ready && exec cat"  # it ends with this process at the latest
    holder = subprocess.Popen(
        ["unshare", *namespaces, "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    with holder.stdout as told:
        assert told.readline(), "no namespaces"
    return holder


class Network:
    """A switch that pods are plugged into; it goes with the process that holds it."""

    def __init__(self) -> None:
        self.holder = _hold("--net", "true")
        self._ip("link", "add", "switch", "type", "bridge")
        self._ip("link", "set", "switch", "up")

    def plug_in(self, number: int, pid: int) -> str:
        """Give the pod that a process holds an address."""
        address = f"{SUBNET}.{number}"
        port = f"port{number}"
        self._ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        self._ip("link", "set", port, "master", "switch", "up")
        inside = ["nsenter", "--target", str(pid), "--net", "ip"]
        for words in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            # Dask asks which address would lead out.
            ("route", "add", "default", "dev", "eth0"),
        ):
            subprocess.run([*inside, *words], check=True)
        return address

    def end(self) -> None:
        """Unplug all."""
        self.holder.communicate()  # its end of standard input

    def _ip(self, *words: str) -> None:
        net = ["nsenter", "--target", str(self.holder.pid), "--net", "ip"]
        subprocess.run([*net, *words], check=True)


class Pod:
    """A pod of one container, whose processes see the names, files and ports of theirs.

    Attributes:
        address: In the pods' network.
    """

    def __init__(
        self, network: Network, number: int, part: str, objects: list[Object], root: Path
    ) -> None:
        self.template = pods(objects)[part]
        [self.container] = containers(self.template)
        self.folder = root / f"{part}-{number}"
        self.folder.mkdir()
        self._objects, self._claims = objects, root / "claims"
        self._places: dict[str, Path] = {}
        self._make_files()
        hosts = self.folder / "hosts"
        names = {"scheduler": 2, "api": 3}
        hosts.write_text(
            "127.0.0.1 localhost\n"
            + "".join(
                f"{SUBNET}.{last} r-distrain-{name}.{NAMESPACE}.svc\n"
                for name, last in names.items()
            )
        )
        self.holder = _hold("--net", "--mount", f"mount --bind {hosts} /etc/hosts")
        self.address = network.plug_in(number, self.holder.pid)
        for sysctl in self.template["spec"]["securityContext"].get("sysctls", ()):
            path = "/proc/sys/" + sysctl["name"].replace(".", "/")
            self.run("sh", "-c", f"echo '{sysctl['value']}' > {path}").check_returncode()
        self.process: subprocess.Popen[bytes] | None = None
        self.log = self.folder / "log"

    def start(self) -> None:
        """Start its container's command."""
        command = self.container["command"]
        assert command[:2] == ["tini", "--"]
        words = [self._here(word) for word in [*command[2:], *self.container["args"]]]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*self._inside(), *words], env=self._environment(), stdout=log, stderr=log
            )

    def run(self, *words: str, given: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a command beside it, as `kubectl exec` does."""
        return subprocess.run(
            [*self._inside(), *words],
            env=self._environment(),
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

    def answers(self, probe: str) -> bool:
        """Whether a probe of its container finds it well."""
        asked = self.container[probe]
        if "exec" in asked:
            return self.run(*asked["exec"]["command"]).returncode == 0
        request = asked["httpGet"]
        [port] = [
            p["containerPort"] for p in self.container["ports"] if p["name"] == request["port"]
        ]
        url = f"{request['scheme'].lower()}://{self.address}:{port}{request['path']}"
        code = (
            "import ssl, sys, urllib.request as r; c = ssl._create_unverified_context(); "
            "sys.exit(r.urlopen(sys.argv[1], context=c, timeout=20).status != 200)"
        )
        return self.run("python", "-c", code, url).returncode == 0

    def listening(self) -> set[int]:
        """The ports on which it listens for others."""
        shown = self.run("cat", "/proc/net/tcp", "/proc/net/tcp6").stdout
        found = re.findall(r"^ *\d+: ([0-9A-F]+):([0-9A-F]{4}) \S+ 0A ", shown, re.MULTILINE)
        return {int(port, 16) for address, port in found if address != "0100007F"}

    def end(self) -> None:
        """End its processes as Kubernetes does, and leave nothing."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.holder.communicate()  # its end of standard input

    def _inside(self) -> list[str]:
        return ["nsenter", "--target", str(self.holder.pid), "--net", "--mount"]

    def _environment(self) -> dict[str, str]:
        given = {name: os.environ[name] for name in _OWN if name in os.environ}
        # The commands of this environment, which need not be activated.
        given["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{given.get('PATH', os.defpath)}"
        for each in self.container["env"]:
            if "valueFrom" in each:
                source = each["valueFrom"]["secretKeyRef"]
                given[each["name"]] = self._secret(source["name"])[source["key"]].decode()
            else:
                given[each["name"]] = self._here(each["value"])
        return given

    def _secret(self, name: str) -> dict[str, bytes]:
        data = find(self._objects, "Secret", name)["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    def _here(self, text: str) -> str:
        """A text with the paths of mounts replaced by those of this machine."""
        pattern = "|".join(sorted(map(re.escape, self._places), key=len, reverse=True))
        return re.sub(
            rf"(?<![\w/])({pattern})(?![\w-])", lambda match: str(self._places[match[1]]), text
        )

    def _make_files(self) -> None:
        """Fill the volumes, and note where each is mounted and where it lies here."""
        volumes = {volume["name"]: volume for volume in self.template["spec"]["volumes"]}
        texts = []
        for mount in self.container["volumeMounts"]:
            path = self._volume(volumes[mount["name"]])
            if mount.get("subPath"):
                path = path / mount["subPath"]
                texts.append(path)
            self._places[mount["mountPath"]] = path
        for path in texts:
            path.write_text(self._here(path.read_text()))

    def _volume(self, volume: dict[str, Any]) -> Path:
        path: Path
        if "persistentVolumeClaim" in volume:
            path = self._claims / volume["persistentVolumeClaim"]["claimName"]
        else:
            path = self.folder / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        if "secret" in volume:
            data = self._secret(volume["secret"]["secretName"])
            items = volume["secret"].get("items") or [{"key": key, "path": key} for key in data]
            for item in items:
                file = path / item["path"]
                file.write_bytes(data[item["key"]])
                file.chmod(0o600)
        if "configMap" in volume:
            for name, text in find(self._objects, "ConfigMap", volume["configMap"]["name"])[
                "data"
            ].items():
                (path / name).write_text(text)
        return path
