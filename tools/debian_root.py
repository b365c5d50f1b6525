"""The files of an image with Debian's Python and corro in it, as one tar.

mmdebstrap makes a root folder of Debian's packages, from the mirrors that this machine's apt knows,
and writes it as a tar that is the same for the same packages. Before it does so, a hook unpacks
what is ours over it: wheels to where Debian's Python looks for a machine's own modules, and
examples.

The packages are the newest of the suite. For those of a certain day, let apt read that day's
archive of snapshot.debian.org.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import oci_archive

SUITE = "bookworm"
PYTHON = "3.11"  # the suite's
# openmpi-bin for mpirun; the last one is the data of the examples.
PACKAGES = (
    *("python3", "python-is-python3", "python3-numpy", "python3-yaml", "python3-packaging"),
    *("openmpi-bin", "dataset-fashion-mnist"),
)
# Open MPI's package wants a remote shell, which is `corro rsh`: pods show that nobody calls ssh.
LEFT_OUT = (
    *("/usr/bin/ssh", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*"),
    "/usr/share/doc/*",
)
KEPT = "/usr/share/doc/*/copyright"
MODULES = f"usr/local/lib/python{PYTHON}/dist-packages"
PROGRAMS = "usr/local/bin"
USER, HOME = "1000:1000", "/home/corro"
MAKE_USER = 'chroot "$1" useradd --uid 1000 --create-home --home-dir {home} --shell /bin/bash corro'
# Pods cannot write there, and each of their processes would compile the modules again.
COMPILE = 'chroot "$1" python3 -m compileall -q --invalidation-mode unchecked-hash /{modules}'
SCRIPT = """\
#!/usr/bin/python3
import sys

from {module} import {function}

sys.exit({function}())
"""


def mirrors() -> list[str]:
    """Debian's archives of the suite, as lines for apt, from this machine's own settings."""
    line = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", line, "Created-By: Packages"]
    run = subprocess.run([*command, "Origin: Debian"], capture_output=True, text=True, check=True)
    lines = sorted({each for each in run.stdout.splitlines() if each.split()[2].startswith(SUITE)})
    if not lines:
        raise ValueError(f"apt knows no archive of Debian {SUITE} here: apt-get update, or add one")
    return lines


def target_of(name: str) -> str | None:
    """Where a file of a wheel goes; None for what only installers need."""
    top, *rest = PurePosixPath(name).parts
    if top.endswith(".data") and rest[:1] == ["scripts"]:
        return f"{PROGRAMS}/{rest[1]}"
    if top.endswith(".data") and rest[:2] == ["data", "libexec"]:
        return "/".join([str(PurePosixPath(PROGRAMS).parent), *rest[1:]])
    if top.endswith(".data"):
        raise ValueError(f"{name}: no place for it in an image")
    return None if name.endswith(".dist-info/RECORD") else f"{MODULES}/{name}"


def add_scripts(entry_points: str, tree: Path) -> None:
    parser = configparser.ConfigParser(delimiters="=")
    parser.read_string(entry_points)
    if not parser.has_section("console_scripts"):
        return
    for name, value in parser["console_scripts"].items():
        module, _, function = value.partition(":")
        (tree / PROGRAMS / name).write_text(SCRIPT.format(module=module, function=function))
        (tree / PROGRAMS / name).chmod(0o755)


def add_wheel(wheel: Path, tree: Path) -> None:
    """Unpacks a wheel into a root folder, as an installer does."""
    python = wheel.stem.split("-")[-3]
    if not python.startswith("py") and python != "cp" + PYTHON.replace(".", ""):
        raise ValueError(f"{wheel}: for {python}, but Debian {SUITE} has Python {PYTHON}")
    (tree / PROGRAMS).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            target = target_of(name)
            if target is None or name.endswith("/"):
                continue
            path = tree / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
            path.chmod(0o755 if ".data/" in name else 0o644)
            if name.endswith(".dist-info/entry_points.txt"):
                add_scripts(path.read_text(), tree)


def write_overlay(
    tar: Path, wheels: Sequence[Path], examples: Mapping[str, Path], epoch: int
) -> None:
    """What is ours, as a tar to unpack over the root."""
    with tempfile.TemporaryDirectory(dir=tar.parent) as folder:
        tree = Path(folder)
        for wheel in wheels:
            add_wheel(wheel, tree)
        (tree / "examples").mkdir()
        for name, path in examples.items():
            shutil.copyfile(path, tree / "examples" / name)
            (tree / "examples" / name).chmod(0o644)
        with tar.open("wb") as file:
            oci_archive.write_tree(tree, file, epoch)


def write_root(tar: Path, wheels: Sequence[Path], examples: Mapping[str, Path], epoch: int) -> None:
    """Writes the root folder of the image to `tar`. Takes a minute and downloads some 100 MB."""
    overlay = tar.with_suffix(".overlay.tar")
    write_overlay(overlay, wheels, examples, epoch)
    sources = tar.with_suffix(".list")
    sources.write_text("".join(f"{line}\n" for line in mirrors()))
    command = ["mmdebstrap", "--quiet", "--variant=minbase", "--skip=output/dev"]
    command += [f"--include={','.join(PACKAGES)}", "--aptopt=APT::Install-Recommends false"]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    command += [f"--dpkgopt=path-include={KEPT}"]
    hooks = [f"tar-in {overlay} /", COMPILE.format(modules=MODULES), MAKE_USER.format(home=HOME)]
    command += [f"--customize-hook={hook}" for hook in hooks]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run([*command, SUITE, str(tar), str(sources)], env=environment, check=True)
