"""Images are the same bytes each time and as readers expect; the operator's runs from nothing."""

from __future__ import annotations

import filecmp
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pods
import pytest

import debian_root
import image
import oci_archive
from oci_archive import Image

MOST_OPERATOR_BYTES = 20_000_000
LONG = "a" * 90 + "/" + "b" * 90 + "/" + "c" * 90
USERS = {"User": "1:1", "Env": ["A=B"]}


def make_tree(root: Path) -> Path:
    (root / LONG).parent.mkdir(parents=True)
    (root / LONG).write_bytes(b"long")
    (root / "bin").mkdir()
    (root / "bin/run").write_bytes(b"#!/bin/sh\n")
    (root / "bin/run").chmod(0o755)
    (root / "secret").write_bytes(b"")
    (root / "secret").chmod(0o600)
    (root / "link").symlink_to("/bin/run")
    (root / "bin/twin").hardlink_to(root / "bin/run")
    (root / "folder").mkdir(mode=0o700)
    return root


def archive_of(tree: Path, folder: Path, epoch: int = 0) -> Path:
    folder.mkdir()
    layer = oci_archive.pack_layer(tree, folder / "layer.gz", epoch)
    target = folder / "image.tar"
    oci_archive.write_archive(
        target, Image(name="team/tool:1", layers=[layer], run=USERS, epoch=epoch)
    )
    return target


def read(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        files = [(member, tar.extractfile(member)) for member in tar if member.isfile()]
        return {member.name: file.read() for member, file in files if file is not None}


def blob(files: dict[str, bytes], entry: dict[str, Any]) -> bytes:
    """The blob that a descriptor means; its digest and size are right."""
    content = files["blobs/sha256/" + entry["digest"].removeprefix("sha256:")]
    assert hashlib.sha256(content).hexdigest() == entry["digest"].removeprefix("sha256:")
    assert len(content) == entry["size"]
    return content


def layers_of(archive: Path) -> list[bytes]:
    """The image's layers, each a tar, found as an OCI reader finds them."""
    files = read(archive)
    manifest = json.loads(blob(files, json.loads(files["index.json"])["manifests"][0]))
    contents = [gzip.decompress(blob(files, layer)) for layer in manifest["layers"]]
    config = json.loads(blob(files, manifest["config"]))
    digests = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in contents]
    assert config["rootfs"] == {"type": "layers", "diff_ids": digests}
    return contents


def unpack(layer: bytes, root: Path) -> Path:
    root.mkdir()
    subprocess.run(["tar", "-xp", "-C", str(root)], input=layer, check=True)
    return root


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    first = archive_of(make_tree(tmp_path / "a"), tmp_path / "1")
    other = make_tree(tmp_path / "b")
    for path in (other / "secret", other / "bin"):
        os.utime(path, (5, 5))
    assert archive_of(other, tmp_path / "2").read_bytes() == first.read_bytes()
    (other / "secret").chmod(0o640)
    assert archive_of(other, tmp_path / "3").read_bytes() != first.read_bytes()


def test_a_layer_unpacks_to_the_tree(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    [layer] = layers_of(archive_of(tree, tmp_path / "out", epoch=86400))
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        members = tar.getmembers()
    assert [each.name for each in members] == sorted(each.name for each in members)
    assert {(each.uid, each.gid, each.uname, each.mtime) for each in members} == {(0, 0, "", 86400)}
    unpacked = unpack(layer, tmp_path / "unpacked")
    assert (unpacked / LONG).read_bytes() == b"long"
    assert (unpacked / "link").readlink() == Path("/bin/run")
    assert (unpacked / "bin/run").samefile(unpacked / "bin/twin")
    paths = [path.relative_to(tree) for path in sorted(tree.rglob("*"))]
    assert paths == [path.relative_to(unpacked) for path in sorted(unpacked.rglob("*"))]
    modes = [(unpacked / path).lstat().st_mode for path in paths]
    assert modes == [(tree / path).lstat().st_mode for path in paths]


def test_docker_and_oci_read_the_same_image(tmp_path: Path) -> None:
    files = read(archive_of(make_tree(tmp_path / "tree"), tmp_path / "out", epoch=86400))
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    [entry] = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"] == {
        "io.containerd.image.name": "docker.io/team/tool:1",
        "org.opencontainers.image.ref.name": "1",
    }
    manifest = json.loads(blob(files, entry))
    [docker] = json.loads(files["manifest.json"])
    assert docker["RepoTags"] == ["team/tool:1"]
    parts = [manifest["config"], *manifest["layers"]]
    assert [docker["Config"], *docker["Layers"]] == [
        each["digest"].replace("sha256:", "blobs/sha256/") for each in parts
    ]
    config = json.loads(files[docker["Config"]])
    assert (config["config"], config["created"]) == (USERS, "1970-01-02T00:00:00Z")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("corro:1", "docker.io/library/corro:1"),
        ("team/corro:1", "docker.io/team/corro:1"),
        ("localhost/corro:1", "localhost/corro:1"),
        ("here:5000/corro:1", "here:5000/corro:1"),
    ],
)
def test_names_are_as_containerd_keeps_them(name: str, full: str) -> None:
    assert oci_archive.full_name(name) == full


def test_what_no_image_can_hold_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: neither a file nor"):
        oci_archive.write_tree(tmp_path, io.BytesIO(), 0)


def test_a_program_with_a_loader_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needs /lib.*/ld-"):
        image.operator_image(Path("/bin/sh"), tmp_path, 0)
    with pytest.raises(ValueError, match="not a program"):
        image.operator_image(Path(__file__), tmp_path, 0)


def test_what_is_shown_is_what_is_inside(tmp_path: Path) -> None:
    archive = archive_of(make_tree(tmp_path / "tree"), tmp_path / "out")
    [entry] = json.loads(read(archive)["index.json"])["manifests"]
    [layer] = layers_of(archive)
    name, digest, [sizes] = oci_archive.read_layers(archive)
    assert (name, digest, sizes.unpacked) == ("team/tool:1", entry["digest"], len(layer))
    assert sizes.size == (tmp_path / "out/layer.gz").stat().st_size


def inside(root: Path, *words: str) -> str:
    """Runs a program of the root alone, and returns what it prints."""
    command = ["unshare", "-r", "chroot", str(root), *words]
    env = {"PATH": os.environ["PATH"]}
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    return run.stdout


def refusal() -> str:
    if pods.program() is None:
        return "corro_pod_program was not built"
    run = subprocess.run(["unshare", "-r", "true"], capture_output=True, check=False)
    return "" if run.returncode == 0 else "no user namespaces here"


@pytest.mark.skipif(bool(refusal()), reason=refusal() or "-")
def test_the_operators_image_is_small_and_runs_from_nothing(tmp_path: Path) -> None:
    program = pods.program()
    assert program is not None
    made = image.operator_image(program, tmp_path, 0)
    assert sum(layer.size for layer in made.layers) <= MOST_OPERATOR_BYTES
    oci_archive.write_archive(tmp_path / "image.tar", made)
    [layer] = layers_of(tmp_path / "image.tar")
    root = unpack(layer, tmp_path / "root")
    assert sorted(path.name for path in root.iterdir()) == ["LICENSE", "bin"]
    entry = made.run["Entrypoint"][0]
    assert inside(root, entry, "version") == f"corro {image.VERSION}\n"
    assert "--agent-image" in inside(root, entry, *made.run["Cmd"], "--help")


@pytest.mark.slow  # Beside the packages of `make test-all`.
@pytest.mark.skipif(shutil.which("skopeo") is None, reason="needs skopeo")
@pytest.mark.parametrize("transport", ["docker-archive", "oci-archive"])
def test_another_reader_copies_it(tmp_path: Path, transport: str) -> None:
    """skopeo compares every digest on its way."""
    archive = archive_of(make_tree(tmp_path / "tree"), tmp_path / "out")
    target = tmp_path / "copy"
    command = ["skopeo", "--insecure-policy", "copy", "--quiet"]
    subprocess.run([*command, f"{transport}:{archive}", f"dir:{target}"], check=True)
    copied = json.loads((target / "manifest.json").read_text())
    wanted = json.loads(read(archive)["manifest.json"])[0]["Config"].removeprefix("blobs/sha256/")
    assert copied["config"]["digest"] == f"sha256:{wanted}"


def instructions(name: str) -> dict[str, str]:
    """The instructions of a container file by their names; of several the last."""
    text = (image.ROOT / "deploy/images" / name).read_text().replace("\\\n", " ")
    lines = [line.partition(" ") for line in text.splitlines() if line[:1].isupper()]
    return {word: rest for word, _, rest in lines}


def test_container_files_say_the_same() -> None:
    file, made = instructions("operator.Dockerfile"), image.OPERATOR_RUN
    assert (file["USER"], json.loads(file["ENTRYPOINT"])) == (made["User"], made["Entrypoint"])
    assert json.loads(file["CMD"]) == made["Cmd"]
    file, made = instructions("python.Dockerfile"), image.PYTHON_RUN
    assert (file["USER"], file["WORKDIR"]) == (made["User"], made["WorkingDir"])
    assert json.loads(file["CMD"]) == made["Cmd"]


def test_the_container_file_of_python_has_the_same_packages() -> None:
    text = (image.ROOT / "deploy/images/python.Dockerfile").read_text()
    packages = text.partition("--no-install-recommends ")[2].partition("&&")[0]
    assert sorted(packages.replace("\\", " ").split()) == sorted(
        [*debian_root.PACKAGES, "python3-pip"]
    )


def make_wheel(folder: Path, tag: str = "py3-none-any", **files: str) -> Path:
    wheel = folder / f"tool-1.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


def test_a_wheel_is_unpacked_as_an_installer_does(tmp_path: Path) -> None:
    files = {
        "tool/__init__.py": "def main() -> int:\n    return 7\n",
        "tool-1.0.data/scripts/native": "#!/bin/sh\necho native\n",
        "tool-1.0.data/data/libexec/tool/tool-more": "#!/bin/sh\necho more\n",
        "tool-1.0.dist-info/RECORD": "",
        "tool-1.0.dist-info/entry_points.txt": "[console_scripts]\ntool = tool:main\n",
    }
    root = tmp_path / "root"
    debian_root.add_wheel(make_wheel(tmp_path, **files), root)
    found = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    modules = debian_root.MODULES
    assert sorted(found) == [
        "usr/local/bin/native",
        "usr/local/bin/tool",
        f"{modules}/tool-1.0.dist-info/entry_points.txt",
        f"{modules}/tool/__init__.py",
        "usr/local/libexec/tool/tool-more",
    ]
    programs = root / "usr/local/bin"
    assert subprocess.check_output([programs / "native"]) == b"native\n"
    assert subprocess.check_output([root / "usr/local/libexec/tool/tool-more"]) == b"more\n"
    env = os.environ | {"PYTHONPATH": str(root / modules)}
    assert subprocess.run([programs / "tool"], env=env, check=False).returncode == 7


def test_a_wheel_for_another_python_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, tag="cp399-cp399-linux_x86_64")
    with pytest.raises(ValueError, match="for cp399, but Debian"):
        debian_root.add_wheel(wheel, tmp_path / "root")
    with pytest.raises(ValueError, match="no place"):
        debian_root.target_of("tool-1.0.data/headers/tool.h")


WHEELS = sorted((image.ROOT / "build/wheels").glob("*.whl"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="needs mmdebstrap")
@pytest.mark.skipif(not WHEELS, reason="needs build/wheels (make images)")
def test_the_image_of_python_trains_and_is_the_same_twice(tmp_path: Path) -> None:
    """Downloads Debian's packages twice."""
    archives = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        made = image.python_image(WHEELS, tmp_path / name, 0)
        archives.append(tmp_path / f"{name}.tar")
        oci_archive.write_archive(archives[-1], made)
    assert filecmp.cmp(archives[0], archives[1], shallow=False)
    [layer] = layers_of(archives[0])
    root = unpack(layer, tmp_path / "root")
    assert not (root / "usr/bin/ssh").exists()
    assert inside(root, "/usr/local/bin/corro", "version") == f"corro {image.VERSION}\n"
    train = ["/usr/bin/python", "/examples/tensorflow_mnist.py", "--epochs", "1"]
    assert " ranks=1 " in inside(root, *train)
