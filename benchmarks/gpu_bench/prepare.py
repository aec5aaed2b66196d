"""Prepare `make gpu` for a machine with a GPU and without a network.

    python benchmarks/gpu_bench/prepare.py [--python 3.12] [--most-mib N] [NAME ...]

Writes `.gpu/packed.tar.gz`, which git ignores, with paths from the checkout's root:

  .gpu/site/        packages that images with torch usually lack (`PACKAGES`), and packages NAME
  distrain/**/*.so  the C kernels, which are for Python's stable ABI and this machine's processor

Packages have the versions of `constraints.txt`, and are for Linux on x86-64. Packages that cannot
be installed are left out and listed; the exit code is 1 if one of `PACKAGES` is missing. The files
of the checkout and the archive must be smaller than N MiB (64). Copy both, and run the printed
commands: the first one runs tests and experiments, the second one benchmarks; together they take 12
minutes.
"""

import argparse
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
PACKED = ROOT / ".gpu" / "packed.tar.gz"
PACKAGES = (
    *("annotated-types", "pydantic", "pydantic_core", "tenacity", "typing-inspection"),
    *("bokeh", "dask", "distributed", "locket", "partd", "tblib", "tornado", "xyzservices", "zict"),
    *("anyio", "h11", "httpcore2", "httpx2", "idna", "truststore"),
    *("dask-cuda", "rapids-dask-dependency"),
)
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 26, 24, 17, 12, 5)),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"),
)
PLAN = (
    (7, "rates|tests|experiment, (branches|straight|loader|ranks)"),
    (5, r"step\.py, (MLP 16|DLRM 16)|end_to_end"),
)
"""For each call of `gpu.py`: its minutes, and the stages that it runs."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", metavar="NAME", nargs="*", help="further packages")
    parser.add_argument("--python", default="3.12", help="version of the machine's Python")
    parser.add_argument("--most-mib", metavar="N", type=float, default=64)
    options = parser.parse_args(arguments)
    PACKED.parent.mkdir(exist_ok=True)
    left_out = set[str]()
    with TemporaryDirectory() as folder:
        for name in (*PACKAGES, *options.names):
            if mistake := install(name, Path(folder), options.python):
                left_out.add(name)
                print(f"Left out: {name}, for Python {options.python}: {mistake}")
        build_kernels()
        with tarfile.open(PACKED, "w:gz") as packed:
            packed.add(folder, ".gpu/site")
            for path in sorted((ROOT / "distrain").rglob("_*.abi3.so")):
                packed.add(path, path.relative_to(ROOT))
    size_mib = (checkout_bytes() + PACKED.stat().st_size) / 2**20
    print(f"Checkout and {PACKED.name}: {size_mib:.1f} MiB")
    if size_mib > options.most_mib:
        sys.exit(
            f"That is more than {options.most_mib:g} MiB: name fewer packages, or remove files."
        )
    for minutes, only in PLAN:
        print(command(minutes, only))
    if needed := sorted(left_out.intersection(PACKAGES)):
        sys.exit(f"The run needs these packages, which pip cannot install: {', '.join(needed)}")


def install(name: str, site: Path, python: str) -> str:
    """Install a package's wheel, without its dependencies, for another machine.

    Returns the last line of pip's error, or an empty text.
    """
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    words += ["--disable-pip-version-check", "--only-binary=:all:", "--implementation", "cp"]
    words += ["--python-version", python, "--target", str(site), "-c", "constraints.txt", name]
    words += [word for platform in PLATFORMS for word in ("--platform", platform)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False, text=True)
    if not done.returncode:
        return ""
    return (done.stderr.strip() or "pip failed").splitlines()[-1]


def build_kernels() -> None:
    build = [sys.executable, "-W", "ignore", "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(build, cwd=ROOT, check=True)


def checkout_bytes() -> int:
    """Return the size of all files of the checkout that git does not ignore."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    paths = [ROOT / name for name in names.split("\0") if name]
    return sum(path.lstat().st_size for path in paths if path.is_file())


def command(minutes: float, only: str) -> str:
    """Return the command for the checkout's root on the other machine."""
    return (
        "tar -xzf .gpu/packed.tar.gz && PYTHONPATH=.gpu/site python3 benchmarks/gpu.py "
        f"--out ${{OUT:-gpu-report}} --minutes {minutes} --only '{only}'"
    )


if __name__ == "__main__":
    main()
