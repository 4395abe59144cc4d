"""Writes a container image as an OCI image layout in a tar file, without an engine.

    image.py BINARY TREE NAME VERSION COMMIT ARCHITECTURE LEVEL FILE

The root file system has the program, the C library that it needs, the certificate authorities and
time zones of this distribution, and nothing else: no shell, no package manager. It runs as user
65532, or as any user of the group 0. The SBOM of TREE is in the image and beside it, as an artefact
that refers to it (OCI image specification 1.1). Times are SOURCE_DATE_EPOCH, and the same inputs make
the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
USER = 65532
# Packages whose files are copied, and whose copyright notices therefore belong to the image.
PACKAGES = ["libc6", "libgcc-s1", "ca-certificates", "tzdata"]
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
SBOM = "application/vnd.cyclonedx+json"


class Layer:
    """A layer in the making: files by their path, written in the order of the paths."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def folder(self, path: str, mode: int = 0o755, user: int = 0) -> None:
        if path and path not in self.entries:
            self.folder(path.rpartition("/")[0])
            self._add(path, tarfile.DIRTYPE, mode, user=user)

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        self.folder(path.rpartition("/")[0])
        self._add(path, tarfile.REGTYPE, mode, content)

    def link(self, path: str, target: str) -> None:
        self.folder(path.rpartition("/")[0])
        self._add(path, tarfile.SYMTYPE, 0o777, target=target)

    def copy(self, source: Path, path: str | None = None) -> None:
        """A file of this machine, at its own path unless another is given."""
        mode = 0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644
        self.file(path or str(source).lstrip("/"), source.read_bytes(), mode)

    def _add(self, path: str, kind: bytes, mode: int, content: bytes = b"", target: str = "", user: int = 0) -> None:
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.mtime, info.size = kind, mode, EPOCH, len(content)
        # The group 0 is that of users whom OpenShift chooses.
        info.uid, info.gid, info.linkname = user, 0, target
        self.entries[path] = (info, content)

    def tar(self) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for _, (info, content) in sorted(self.entries.items()):
                tar.addfile(info, io.BytesIO(content))
        return out.getvalue()


def libraries(binary: str) -> list[tuple[str, Path]]:
    """The shared libraries of a program: where it looks for them, and where they are."""
    output = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"(?:=> )?(/\S+) \(0x", output)
    return [(path.lstrip("/"), Path(path).resolve()) for path in found]


def root_of(binary: str, tree: Path) -> Layer:
    layer = Layer()
    layer.copy(Path(binary), "usr/bin/postern")
    for path, file in libraries(binary):
        layer.copy(file, path)
    layer.copy(Path("/etc/ssl/certs/ca-certificates.crt"))
    zones = Path("/usr/share/zoneinfo")
    for path in sorted(zones.rglob("*")):
        # These are the same zones under other rules.
        if path.relative_to(zones).parts[0] in ("right", "posix") or path.is_dir():
            continue
        layer.copy(path.resolve(), str(path).lstrip("/"))
    for package in PACKAGES:
        layer.copy(Path(f"/usr/share/doc/{package}/copyright"))
    for name in ("LICENSE", "THIRD-PARTY-LICENSES.txt", "postern.cdx.json", "postern.spdx.json", "postern.schema.json"):
        layer.copy(tree / "usr/share/doc/postern" / name, f"usr/share/doc/postern/{name}")
    layer.file("etc/passwd", f"root:x:0:0:root:/:/sbin/nologin\npostern:x:{USER}:{USER}:Postern:/var/lib/postern:/sbin/nologin\n".encode())
    layer.file("etc/group", f"root:x:0:\npostern:x:{USER}:\n".encode())
    layer.file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    layer.folder("etc/postern")
    for folder in ("var/lib/postern", "var/log/postern", "run/postern"):
        layer.folder(folder, 0o770, USER)
    layer.folder("tmp", 0o1777)
    return layer


class Layout:
    """An OCI image layout in the making."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def blob(self, media_type: str, content: bytes) -> dict:
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def json(self, media_type: str, content: dict) -> dict:
        return self.blob(media_type, json.dumps(content, sort_keys=True, separators=(",", ":")).encode())

    def write(self, path: Path, manifests: list[dict]) -> None:
        layer = Layer()
        layer.file("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        layer.file("index.json", json.dumps(index, sort_keys=True).encode())
        for digest, content in self.blobs.items():
            layer.file(f"blobs/sha256/{digest}", content)
        path.write_bytes(layer.tar())


def main() -> None:
    binary, tree, name, version, commit, architecture, level, file = sys.argv[1:]
    created = datetime.fromtimestamp(EPOCH, timezone.utc).isoformat().replace("+00:00", "Z")
    tar = root_of(binary, Path(tree)).tar()
    layout = Layout()
    packed = layout.blob(LAYER, gzip.compress(tar, int(level), mtime=0))
    labels = {
        "org.opencontainers.image.title": name,
        "org.opencontainers.image.description": "Access gateway: authenticates, authorizes and forwards HTTP requests",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": commit,
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.url": "https://postern.example",
    }
    config = layout.json(CONFIG, {
        "created": created, "architecture": architecture, "os": "linux",
        "config": {
            "User": str(USER), "Entrypoint": ["/usr/bin/postern"], "Cmd": ["serve", "/etc/postern/postern.toml"],
            "Env": ["PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "WorkingDir": "/var/lib/postern", "Labels": labels, "StopSignal": "SIGTERM",
            "ExposedPorts": {"8080/tcp": {}},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}"]},
        "history": [{"created": created, "created_by": "dev/package"}],
    })  # fmt: skip
    image = layout.json(MANIFEST, {
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [packed], "annotations": labels,
    })  # fmt: skip
    sbom = layout.blob(SBOM, (Path(tree) / "usr/share/doc/postern/postern.cdx.json").read_bytes())
    attached = layout.json(MANIFEST, {
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": SBOM, "config": layout.blob(EMPTY, b"{}"),
        "layers": [sbom], "subject": image, "annotations": {"org.opencontainers.image.created": created},
    })  # fmt: skip
    platform = {"architecture": architecture, "os": "linux"}
    image = {**image, "platform": platform, "annotations": {"org.opencontainers.image.ref.name": version}}
    layout.write(Path(file), [image, {**attached, "artifactType": SBOM}])


if __name__ == "__main__":
    main()
