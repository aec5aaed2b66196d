"""What pyproject.toml cannot say: the version, and the tag of a wheel without C extensions."""

import email
import os
import runpy
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class BdistWheel(bdist_wheel):
    """Builds a wheel whose tag says whether anything in it is compiled.

    The extensions are optional: without a compiler the build goes on. setuptools would call such a
    wheel by the platform all the same, and whoever keeps wheels could not tell it from a built one.
    """

    def run(self) -> None:
        """Build, look at what came of it, and make the wheel."""
        # An earlier build of this checkout may have left modules here that are deleted since.
        shutil.rmtree(self.get_finalized_command("build").build_lib, ignore_errors=True)
        if os.environ.get("DISTRAIN_RELEASE") == "1":  # a release has all kernels, or none is made
            for extension in self.distribution.ext_modules or ():
                extension.optional = False
        self.run_command("build")
        extensions = self.get_finalized_command("build_ext")
        if not any(map(_exists, extensions.get_outputs())):
            self.distribution.ext_modules = None
            self.root_is_pure, self.py_limited_api = True, False
        super().run()


def _exists(path: str) -> bool:
    return Path(path).is_file()


def _version() -> str:
    """A release's version, as indexes of packages want it; else one that names the code, too.

    pip leaves an installed wheel of the same version alone: other code is another version.
    """
    root = Path(__file__).parent
    facts, about = runpy.run_path(str(root / "distrain" / "version.py")), root / "PKG-INFO"
    is_release = os.environ.get("DISTRAIN_RELEASE") == "1"
    if about.is_file():  # this is an unpacked source distribution
        stated = email.message_from_string(about.read_text("utf-8"))["Version"]
        is_release |= stated == facts["__version__"]
    return str(facts["__version__"] if is_release else facts["build"]())


setup(version=_version(), cmdclass={"bdist_wheel": BdistWheel})
