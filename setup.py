"""Sets what pyproject.toml cannot: the version, links to the repository, and the wheel's tag.

DISTRAIN_REPOSITORY is the repository's address; without it there are no links.
"""

import email
import os
import re
import runpy
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class BdistWheel(bdist_wheel):
    """Builds a wheel whose tag shows whether it contains compiled code.

    The extensions are optional: without a compiler the build continues. setuptools would still tag
    such a wheel with the platform, so that it could not be distinguished from a compiled one.
    """

    def run(self) -> None:
        """Build the package, check for compiled extensions, and make the wheel."""
        # An earlier build of this checkout may have left modules here that no longer exist.
        shutil.rmtree(self.get_finalized_command("build").build_lib, ignore_errors=True)
        if os.environ.get("DISTRAIN_RELEASE") == "1":  # a release must have all kernels
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


_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def with_absolute_links(text: str, repository: str, tag: str) -> str:
    """Make a page's links absolute, as package indexes need them."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        return f"{link[1]}[{link[2]}]({repository}/{kind}/{tag}/{link[3]})"

    return _LINK.sub(absolute, text)


def _about(version: str) -> dict[str, object]:
    """Return the description and URLs; for an unpacked source distribution, those in PKG-INFO."""
    root = Path(__file__).parent
    stated = root / "PKG-INFO"
    if stated.is_file():
        about = email.message_from_string(stated.read_text("utf-8"))
        urls = dict(line.split(", ", 1) for line in about.get_all("Project-URL") or ())
        return _described(about.get_payload(), urls)
    repository = os.environ.get("DISTRAIN_REPOSITORY", "")
    readme = (root / "README.md").read_text("utf-8")
    if not repository:
        return _described(readme, {})
    tag = f"v{version}" if "+" not in version else "HEAD"
    pages = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}
    urls = {name: f"{repository}/blob/{tag}/{page}" for name, page in pages.items()}
    urls |= {"Source": repository, "Issues": f"{repository}/issues"}
    return _described(with_absolute_links(readme, repository, tag), urls)


def _described(text: object, urls: dict[str, str]) -> dict[str, object]:
    kind = "text/markdown"
    return {
        "long_description": text,
        "long_description_content_type": kind,
        "project_urls": urls,
    }


def _version() -> str:
    """Return a release's version, as package indexes require.

    Else one that includes the code's digest.

    pip does not replace an installed wheel of the same version, so other code needs another
    version.
    """
    root = Path(__file__).parent
    facts, about = runpy.run_path(str(root / "distrain" / "version.py")), root / "PKG-INFO"
    is_release = os.environ.get("DISTRAIN_RELEASE") == "1"
    if about.is_file():  # this is an unpacked source distribution
        stated = email.message_from_string(about.read_text("utf-8"))["Version"]
        is_release |= stated == facts["__version__"]
    return str(facts["__version__"] if is_release else facts["build"]())


version = _version()
setup(version=version, cmdclass={"bdist_wheel": BdistWheel}, **_about(version))
