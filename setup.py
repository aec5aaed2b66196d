"""What pyproject.toml cannot say: how a wheel is called whose C extensions could not be built."""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class BdistWheel(bdist_wheel):
    """Builds a wheel whose tag says whether anything in it is compiled.

    The extensions are optional: without a compiler the build goes on. setuptools would call such a
    wheel by the platform all the same, and whoever keeps wheels could not tell it from a built one.
    """

    def run(self) -> None:
        """Build, look at what came of it, and make the wheel."""
        self.run_command("build")
        extensions = self.get_finalized_command("build_ext")
        if not any(map(_exists, extensions.get_outputs())):
            self.distribution.ext_modules = None
            self.root_is_pure, self.py_limited_api = True, False
        super().run()


def _exists(path: str) -> bool:
    from pathlib import Path

    return Path(path).is_file()


setup(cmdclass={"bdist_wheel": BdistWheel})
