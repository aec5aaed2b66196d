"""systemd's unit files, read and carried out without systemd, below a folder instead of `/`."""

import os
import random
import shlex
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = DEPLOY / "systemd"


@dataclass
class Unit:
    """The options of one unit and its drop-ins: for each the values that hold, in order.

    Attributes:
        name: With the instance, such as `distrain-worker@0.service`.
    """

    name: str
    options: dict[str, list[str]] = field(default_factory=dict)

    def read(self, *files: Path) -> "Unit":
        """Take in unit files, the later ones as drop-ins: an empty value forgets those before."""
        for file in files:
            for line in file.read_text().splitlines():
                key, separator, value = line.partition("=")
                if not separator or line[0] in "#;[":
                    continue
                if value:
                    self.options.setdefault(key, []).append(self._specified(value))
                else:
                    self.options[key] = []
        return self

    def _specified(self, value: str) -> str:
        instance = self.name.partition("@")[2].removesuffix(".service")
        for specifier, text in (("%i", instance), ("%n", self.name), ("%%", "%")):
            value = value.replace(specifier, text)
        return value

    def last(self, key: str) -> str:
        return self.options[key][-1]

    def outputs(self) -> tuple[str, str]:
        """Where systemd sends standard output and standard error."""
        output = self.options.get("StandardOutput", ["inherit"])[-1]
        output = "journal" if output == "inherit" else output
        error = self.options.get("StandardError", ["inherit"])[-1]
        return output, output if error == "inherit" else error


def unit(name: str, *drop_ins: Path) -> Unit:
    """A unit of this project; `distrain-worker@0` is an instance of `distrain-worker@.service`."""
    stem, at, _ = name.partition("@")
    return Unit(f"{name}.service").read(UNITS / f"{stem}{at}.service", *drop_ins)


@dataclass
class Root:
    """A machine in a folder: where each path of the units lies instead.

    Attributes:
        places: Beginnings of paths, and other texts of units, with what stands for them.
    """

    folder: Path
    places: dict[str, str]

    def path(self, text: str) -> str:
        """A text of a unit with paths of this machine."""
        for there, here in self.places.items():
            text = text.replace(there, here)
        return text

    def environment(self, of: Unit) -> dict[str, str]:
        """What systemd would give the unit's processes: nothing of the caller's."""
        home = self.folder / "home"
        found = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(home)}
        for entry in of.options.get("Environment", []):
            for word in shlex.split(self.path(entry)):
                key, _, value = word.partition("=")
                found[key] = value
        for name in of.options.get("EnvironmentFile", []):
            file = Path(self.path(name.removeprefix("-")))
            if name.startswith("-") and not file.exists():
                continue
            for line in file.read_text().splitlines():
                if line and line[0] not in "#;":
                    key, _, value = line.partition("=")
                    found[key] = self.path(value)
        return found

    def load_credentials(self, of: Unit) -> None:
        """Copy what `LoadCredential` names to where the unit's processes look."""
        folder = Path(self.path(f"/run/credentials/{of.name}"))
        folder.mkdir(parents=True, exist_ok=True)
        for entry in of.options.get("LoadCredential", []):
            name, _, source = entry.partition(":")
            (folder / name).write_bytes(Path(self.path(source)).read_bytes())
            (folder / name).chmod(0o400)

    def start(self, of: Unit, log: Path) -> "subprocess.Popen[bytes]":
        """Run the unit's `ExecStart` as systemd would: no shell, its words, its folder.

        Args:
            of: The unit.
            log: What the journal would get.
        """
        self.load_credentials(of)
        for key, parent in (("CacheDirectory", "/var/cache"), ("StateDirectory", "/var/lib")):
            for name in of.options.get(key, []):
                folder = Path(self.path(f"{parent}/{name}"))
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = self.environment(of)
        streams = [log if to == "journal" else Path(os.devnull) for to in of.outputs()]
        with streams[0].open("ab") as output, streams[1].open("ab") as errors:
            return subprocess.Popen(
                words(self.path(of.last("ExecStart")), environment),
                env=environment,
                cwd=self.path(of.last("WorkingDirectory")),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                umask=int(of.last("UMask"), 8) if os.getuid() == 0 else -1,
            )


def words(command: str, environment: Mapping[str, str]) -> list[str]:
    """A command line's words: `${NAME}` within one, `$NAME` for any number of them."""
    found = []
    for word in shlex.split(command):
        if word.startswith("$") and not word.startswith("${"):
            found += shlex.split(environment.get(word[1:], ""))
            continue
        for key, value in environment.items():
            word = word.replace(f"${{{key}}}", value)
        assert "${" not in word, f"nothing gives {word} a value"
        found.append(word)
    return found


def fixed_port() -> int:
    """A port that is free now, and that the kernel gives to nobody who asks for any."""
    while True:
        port = random.SystemRandom().randrange(20_000, 29_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
