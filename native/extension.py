"""Builds the extension module from the crate beside this file, with cargo; uses only Python's own library.

`python native/extension.py` builds it in this clone (`make native`), with `--wheel FOLDER` in a wheel (`make wheel`),
and with `--wheels FOLDER` in a wheel for each of `TRIPLES` (`make wheels`). `--vendor` fetches the sources of the
crates, with which an sdist builds without a network (`make sdist`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

__all__ = [
    "CRATE",
    "MODULE",
    "TRIPLES",
    "TRIPLE_VARIABLE",
    "BuildError",
    "build",
    "build_wheel",
    "find_cargo",
    "glibc_of",
    "wheel_platform",
]

CRATE = Path(__file__).resolve().parent
# The platforms of `make wheels`, as Rust names them. Zig links the module against symbols of the oldest glibc that Rust
# supports, which every Linux since 2014 has: Amazon Linux 2 has 2.26, the images of Databricks 2.31 and newer.
TRIPLES = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
_OLDEST_GLIBC = (2, 17)
TRIPLE_VARIABLE = "TICDC_NATIVE_TRIPLE"  # tells the build hook for which of them to build
_VENDORED = "vendor"  # the sources of the crates, in an sdist
MODULE = Path("ticdc_source", "kernels", "_native.abi3.so")  # in the project and in wheels


class BuildError(RuntimeError):
    """The extension module cannot be built; the message is one line."""


def build(target: Path, triple: str | None = None) -> None:
    """Build the crate, and put the extension module at `target`.

    Args:
        target: the file.
        triple: for which platform, one of `TRIPLES`; None for this machine and its own glibc.

    Raises:
        BuildError: there is no cargo, or it fails. What cargo says is on standard error.
    """
    cargo = find_cargo()
    command = [cargo, "build" if triple is None else "zigbuild", "--release", "--locked"]
    command.append("--message-format=json-render-diagnostics")
    # In the crate's folder, whose .cargo/config.toml says how to link. PyO3 asks this Python what it is.
    environment = {**os.environ, "PYO3_PYTHON": sys.executable}
    if triple is not None:
        command += ["--target", f"{triple}.{_OLDEST_GLIBC[0]}.{_OLDEST_GLIBC[1]}"]
        environment = {**os.environ, "PYO3_NO_PYTHON": "1"}  # the stable ABI needs none of the other platform
    if (CRATE / _VENDORED).is_dir():
        command += ["--offline", "--config", 'source.crates-io.replace-with="vendored"']
        command += ["--config", f'source.vendored.directory="{_VENDORED}"']
    try:
        done = subprocess.run(command, cwd=CRATE, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        msg = f"{cargo} does not start: {error.strerror}"
        raise BuildError(msg) from error
    if done.returncode:
        msg = f"`{' '.join(command[:3])}` in native/ ended with {done.returncode}"
        raise BuildError(msg)
    messages = map(json.loads, done.stdout.splitlines())
    (library,) = (
        name
        for message in messages
        if message["reason"] == "compiler-artifact" and message["target"]["name"] == "_native"
        for name in message["filenames"]
        if not name.endswith(".rlib")
    )
    # A process may have the old file mapped: it keeps it, because the new one takes its name.
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(library, draft)
    draft.replace(target)


def glibc_of(module: Path) -> tuple[int, int] | None:
    """Return the oldest glibc that can load a module, by the versions of its symbols; None if it needs no glibc."""
    versions = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", module.read_bytes())
    return max(((int(major), int(minor)) for major, minor in versions), default=None)


def wheel_platform(module: Path, triple: str | None = None) -> str:
    """Return the platform tag of a wheel with this module, such as `manylinux_2_34_x86_64` (PEP 600); see `build`."""
    platform = sysconfig.get_platform() if triple is None else f"linux-{triple.partition('-')[0]}"
    platform = platform.replace("-", "_").replace(".", "_")
    glibc = glibc_of(module)
    if glibc is not None and triple is not None:
        glibc = max(glibc, _OLDEST_GLIBC)  # no tag of pip is older
    if platform.startswith("linux_") and glibc is not None:
        return f"manylinux_{glibc[0]}_{glibc[1]}_{platform.removeprefix('linux_')}"
    return platform


def find_cargo() -> str:
    """Return the cargo that CARGO names, or that is on the PATH or in CARGO_HOME.

    Raises:
        BuildError: there is none.
    """
    named = os.environ.get("CARGO")
    if named:
        return named
    home = os.environ.get("CARGO_HOME")
    places = [os.environ.get("PATH", os.defpath), *([str(Path(home) / "bin")] if home else [])]
    found = shutil.which("cargo", path=os.pathsep.join(places))
    if found is None:
        msg = "there is no cargo on the PATH, and neither CARGO nor CARGO_HOME says where it is"
        raise BuildError(msg)
    return found


def build_wheel(folder: Path, triple: str | None = None) -> None:
    """Build the wheel with the extension module into a folder, and print what it needs; see `build` for `triple`.

    Raises:
        BuildError: pip fails; it says why on standard error. Or a tool for another platform is missing.
    """
    variables = {**os.environ, "TICDC_BUILD_NATIVE": "1"}
    if triple is not None:
        variables |= {TRIPLE_VARIABLE: triple, **_with_zig(variables["PATH"])}
        rustup = shutil.which("rustup")
        if rustup is not None:
            subprocess.run([rustup, "--quiet", "target", "add", triple], cwd=CRATE, check=False)
    with tempfile.TemporaryDirectory() as made:
        find_cargo()  # says it in one line if there is none
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, str(CRATE.parent)]
        done = subprocess.run(command, env=variables, check=False)
        if done.returncode:
            msg = "the wheel is not built"
            raise BuildError(msg)
        (wheel,) = Path(made).iterdir()
        with zipfile.ZipFile(wheel) as packed:
            glibc = glibc_of(Path(packed.extract(str(MODULE), made)))
        if triple is not None and glibc is not None and glibc > _OLDEST_GLIBC:
            msg = f"{wheel.name} needs glibc {glibc}, and should need no newer one than {_OLDEST_GLIBC}"
            raise BuildError(msg)
        folder.mkdir(exist_ok=True)
        shutil.copyfile(wheel, folder / wheel.name)
    processor = sysconfig.get_platform().rsplit("-", 1)[1] if triple is None else triple.partition("-")[0]
    libc = f"glibc {glibc[0]}.{glibc[1]} or newer (`ldd --version`)" if glibc else "no glibc"
    print(f"{folder / wheel.name}\nIt needs Python 3.10 or newer, {libc}, and processors of type {processor}.")


def _with_zig(path: str) -> dict[str, str]:
    """Return the environment variables with which cargo finds zig and its subcommand.

    Raises:
        BuildError: they are not installed.
    """
    ziglang = importlib.util.find_spec("ziglang")
    path = f"{Path(sys.executable).parent}{os.pathsep}{path}"
    if ziglang is None or ziglang.origin is None or shutil.which("cargo-zigbuild", path=path) is None:
        msg = "zig is not there: pip install --group wheels (`make wheels` does it)"
        raise BuildError(msg)
    return {"CARGO_ZIGBUILD_ZIG_PATH": str(Path(ziglang.origin).with_name("zig")), "PATH": path}


def vendor() -> None:
    """Fetch the sources of the crates into the crate's folder.

    Raises:
        BuildError: there is no cargo, or it fails.
    """
    command = [find_cargo(), "vendor", "--locked", "--quiet", "--versioned-dirs", _VENDORED]
    if subprocess.run(command, cwd=CRATE, stdout=subprocess.DEVNULL, check=False).returncode:
        msg = "`cargo vendor` in native/ failed"
        raise BuildError(msg)


def main(arguments: list[str]) -> None:
    """Build the extension module in this clone; with `--wheel` or `--wheels`, wheels; or fetch sources (`--vendor`)."""
    try:
        if arguments[:1] == ["--wheel"]:
            build_wheel(Path(arguments[1]))
        elif arguments[:1] == ["--wheels"]:
            for triple in TRIPLES:
                build_wheel(Path(arguments[1]), triple)
        elif arguments[:1] == ["--vendor"]:
            vendor()
        else:
            build(CRATE.parent / MODULE)
    except BuildError as error:
        sys.exit(f"The native path is not built: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
