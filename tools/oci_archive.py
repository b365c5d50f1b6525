"""Writes a container image as one tar file, without a container engine, and always the same bytes.

The file is an OCI layout (index.json, blobs/) and a docker archive (manifest.json) at once, over
the same blobs. So `ctr images import`, `docker load`, `podman load` and `skopeo` all read it:

    oci-layout                   the version of the layout
    index.json                   one manifest, with the image's name
    manifest.json                the same for docker: configuration, layers, name
    blobs/sha256/<digest>        manifest, configuration and layers

What would differ between two builds of the same content is left out: entries are sorted, belong to
uid 0 and have one time, gzip's header has none. A layer's compressed bytes still depend on zlib.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol, cast

MEDIA = "application/vnd.oci.image"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CHUNK = 1 << 20


def own_architecture() -> str:
    return ARCHITECTURES.get(platform.machine(), platform.machine())


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A finished layer: its blob is a file, compressed."""

    blob: Path
    digest: str  # of the blob
    diff_id: str  # of the tar inside
    size: int  # bytes of the blob
    unpacked: int  # bytes of the tar inside


@dataclass(frozen=True, kw_only=True)
class Image:
    name: str  # as users write it: corro:0.1.0
    layers: Sequence[Layer]
    run: dict[str, Any]  # what the configuration calls config: User, Entrypoint, Env, ...
    epoch: int = 0  # seconds since 1970: the time of everything in it
    architecture: str = field(default_factory=own_architecture)


class Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


def source_date_epoch() -> int:
    """SOURCE_DATE_EPOCH, or 0: then an image with the same content is the same, whenever built."""
    return int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def full_name(name: str) -> str:
    """The name as containerd keeps it: docker.io/library/corro:0.1.0 for corro:0.1.0."""
    first, _, rest = name.partition("/")
    if rest and ("." in first or ":" in first or first == "localhost"):
        return name
    return f"docker.io/{name}" if rest else f"docker.io/library/{name}"


class Counted:
    """Passes bytes on, and knows their digest and number."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.hash, self.size = sink, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        self.size += len(data)
        self.sink.write(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is kept here; gzip asks."""

    @property
    def digest(self) -> str:
        return f"sha256:{self.hash.hexdigest()}"


def write_tree(tree: Path, sink: Sink, epoch: int) -> None:
    """A folder's content as a tar: links and modes are kept, owners and times are not."""
    file = cast(BinaryIO, sink)  # of which a stream needs only write()
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(tree.rglob("*"), key=lambda each: each.relative_to(tree).as_posix()):
            name = path.relative_to(tree).as_posix()
            entry = archive.gettarinfo(path, arcname=name)
            if entry is None or not (
                entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()
            ):
                raise ValueError(f"{path}: neither a file nor a folder nor a link")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = epoch
            if entry.isreg():
                with path.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)


def pack_layer(tree: Path, blob: Path, epoch: int) -> Layer:
    """Compresses a folder's content into the file `blob`."""
    with LayerWriter(blob) as writer:
        write_tree(tree, writer.tar, epoch)
    return writer.layer()


def compress_layer(tar: Path, blob: Path) -> Layer:
    """Compresses a finished tar into the file `blob`."""
    with LayerWriter(blob) as writer, tar.open("rb") as content:
        while chunk := content.read(CHUNK):
            writer.tar.write(chunk)
    return writer.layer()


class LayerWriter:
    """What is written to `tar` goes through gzip to the file."""

    def __init__(self, blob: Path) -> None:
        self.blob = blob
        self.file = blob.open("wb")
        self.packed = Counted(self.file)
        self.gzip = gzip.GzipFile("", "wb", 6, self.packed, mtime=0)
        self.tar = Counted(self.gzip)

    def __enter__(self) -> LayerWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.gzip.close()
        self.file.close()

    def layer(self) -> Layer:
        return Layer(
            blob=self.blob,
            digest=self.packed.digest,
            diff_id=self.tar.digest,
            size=self.packed.size,
            unpacked=self.tar.size,
        )


def to_bytes(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def describe_blob(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}


def configuration(image: Image) -> bytes:
    created = datetime.fromtimestamp(image.epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return to_bytes(
        {
            "architecture": image.architecture,
            "os": "linux",
            "created": created,
            "config": image.run,
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in image.layers]},
            "history": [{"created": created} for _ in image.layers],
        }
    )


def manifest(image: Image, config: bytes) -> bytes:
    kind = f"{MEDIA}.layer.v1.tar+gzip"
    layers = [
        {"mediaType": kind, "digest": layer.digest, "size": layer.size} for layer in image.layers
    ]
    return to_bytes(
        {
            "schemaVersion": 2,
            "mediaType": f"{MEDIA}.manifest.v1+json",
            "config": describe_blob(f"{MEDIA}.config.v1+json", config),
            "layers": layers,
        }
    )


def index(image: Image, content: bytes) -> bytes:
    names = {
        "io.containerd.image.name": full_name(image.name),
        "org.opencontainers.image.ref.name": image.name.rpartition(":")[2],
    }
    entry = describe_blob(f"{MEDIA}.manifest.v1+json", content) | {
        "annotations": names,
        "platform": {"architecture": image.architecture, "os": "linux"},
    }
    return to_bytes(
        {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [entry]}
    )


def blob_path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def docker_manifest(image: Image, config: bytes) -> bytes:
    return to_bytes(
        [
            {
                "Config": blob_path(digest_of(config)),
                "RepoTags": [image.name],
                "Layers": [blob_path(layer.digest) for layer in image.layers],
            }
        ]
    )


def entries(image: Image) -> Iterator[tuple[str, bytes | Path]]:
    config = configuration(image)
    content = manifest(image, config)
    yield "oci-layout", to_bytes({"imageLayoutVersion": "1.0.0"})
    yield "index.json", index(image, content)
    yield "manifest.json", docker_manifest(image, config)
    for blob in (config, content):
        yield blob_path(digest_of(blob)), blob
    for layer in image.layers:
        yield blob_path(layer.digest), layer.blob


def write_archive(target: Path, image: Image) -> None:
    part = target.with_suffix(".part")
    with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as archive:
        for folder in ("blobs", "blobs/sha256"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, image.epoch
            archive.addfile(entry)
        for name, content in sorted(dict(entries(image)).items()):
            entry = tarfile.TarInfo(name)
            entry.mtime = image.epoch
            if isinstance(content, Path):
                entry.size = content.stat().st_size
                with content.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    part.replace(target)


@dataclass(frozen=True)
class Sizes:
    size: int  # of a layer's blob
    unpacked: int  # of the tar inside


def read_layers(archive: Path) -> tuple[str, str, list[Sizes]]:
    """The image's name, the digest by which registries know it, and the sizes of its layers."""

    def content(name: str) -> IO[bytes]:
        if (file := tar.extractfile(name)) is None:
            raise ValueError(f"{archive}: {name} is not a file")
        return file

    with tarfile.open(archive) as tar:
        [docker] = json.load(content("manifest.json"))
        [entry] = json.load(content("index.json"))["manifests"]
        sizes = []
        for layer in docker["Layers"]:
            blob = content(layer)
            size = blob.seek(-4, os.SEEK_END) + 4  # gzip ends with the length of what it holds
            sizes.append(Sizes(size, int.from_bytes(blob.read(4), "little")))
    return docker["RepoTags"][0], entry["digest"], sizes
