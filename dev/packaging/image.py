"""Writes a container image as an OCI image layout in a tar file, without an engine.

    image.py BINARY TREE NAME VERSION COMMIT ARCHITECTURE LEVEL FILE

The root file system has the program, the C library that it needs, the certificate authorities and
time zones of this distribution, and nothing else: no shell, no package manager, and nothing that was
added to this machine. It runs as user 65532, or as any user of the group 0. The SBOM is that of TREE
with the packages of the distribution. It is in the image and beside it, as an artefact that refers to
it (OCI image specification 1.1). Times are SOURCE_DATE_EPOCH, and the same inputs make the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import re
import stat
import subprocess
import sys
import tarfile
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
USER = 65532
# Packages whose files are copied, and whose copyright notices therefore belong to the image.
PACKAGES = ["libc6", "libgcc-s1", "ca-certificates", "tzdata"]
WITHOUT_ARCHITECTURE = ["ca-certificates", "tzdata"]
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
SBOM = "application/vnd.cyclonedx+json"
DOCUMENTS = "usr/share/doc/postern"


@dataclass(frozen=True)
class Distribution:
    """The distribution of this machine, and the versions of what the image has of it."""

    id: str
    version: str
    packages: dict[str, str]

    @classmethod
    def of_this_machine(cls) -> Distribution:
        release = platform.freedesktop_os_release()
        query = ["dpkg-query", "--show", "--showformat", "${Version}"]
        version = {name: subprocess.run([*query, name], check=True, capture_output=True, text=True).stdout for name in PACKAGES}
        return cls(release["ID"], release["VERSION_ID"], version)

    def purl(self, name: str, architecture: str) -> str:
        qualifiers = {"arch": "all" if name in WITHOUT_ARCHITECTURE else architecture, "distro": f"{self.id}-{self.version}"}
        return PackageURL("deb", self.id, name, self.packages[name], qualifiers).to_string()


def with_packages(tree: Path, found: Distribution, architecture: str) -> dict[str, bytes]:
    """The SBOMs of a tree, with the packages of the distribution that are in the image."""
    cyclonedx = json.loads((tree / DOCUMENTS / "postern.cdx.json").read_text())
    spdx = json.loads((tree / DOCUMENTS / "postern.spdx.json").read_text())
    # They are other documents than those of the program alone.
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{cyclonedx['serialNumber']} {sorted(found.packages.items())} {architecture}")
    cyclonedx["serialNumber"] = identity.urn
    spdx["documentNamespace"] = spdx["documentNamespace"].rpartition("/")[0] + f"/{identity}"
    # Scanners look up the packages of this distribution.
    cyclonedx["components"].append({"type": "operating-system", "bom-ref": "distribution", "name": found.id, "version": found.version})
    program = next(one["relatedSpdxElement"] for one in spdx["relationships"] if one["relationshipType"] == "DESCRIBES")
    for name, version in found.packages.items():
        purl = found.purl(name, architecture)
        cyclonedx["components"].append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
        spdx["packages"].append({
            "SPDXID": f"SPDXRef-deb-{name}", "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}],
        })  # fmt: skip
        spdx["relationships"].append(
            {"spdxElementId": program, "relationshipType": "DEPENDS_ON", "relatedSpdxElement": f"SPDXRef-deb-{name}"}
        )
    texts = {name: json.dumps(one, indent=1) + "\n" for name, one in (("postern.cdx.json", cyclonedx), ("postern.spdx.json", spdx))}
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(texts["postern.cdx.json"])
    if fault:
        sys.exit(f"the CycloneDX document is not valid: {fault}")
    faults = validate_full_spdx_document(JsonLikeDictParser().parse(json.loads(texts["postern.spdx.json"])))
    if faults:
        sys.exit(f"the SPDX document is not valid: {faults[0].validation_message}")
    return {name: text.encode() for name, text in texts.items()}


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


def root_of(binary: str, tree: Path, sboms: dict[str, bytes]) -> Layer:
    layer = Layer()
    layer.copy(Path(binary), "usr/bin/postern")
    for path, file in libraries(binary):
        layer.copy(file, path)
    # The bundle of this machine may have authorities that only its owner trusts.
    authorities = sorted(Path("/usr/share/ca-certificates/mozilla").glob("*.crt"))
    layer.file("etc/ssl/certs/ca-certificates.crt", b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in authorities))
    zones = Path("/usr/share/zoneinfo")
    for path in sorted(zones.rglob("*")):
        # The first two have the same zones under other rules, the third is the zone of this machine.
        if path.relative_to(zones).parts[0] in ("right", "posix", "localtime") or path.is_dir():
            continue
        layer.copy(path.resolve(), str(path).lstrip("/"))
    for package in PACKAGES:
        layer.copy(Path(f"/usr/share/doc/{package}/copyright"))
    for name in ("LICENSE", "THIRD-PARTY-LICENSES.txt", "postern.schema.json"):
        layer.copy(tree / DOCUMENTS / name, f"{DOCUMENTS}/{name}")
    for name, content in sboms.items():
        layer.file(f"{DOCUMENTS}/{name}", content)
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
    sboms = with_packages(Path(tree), Distribution.of_this_machine(), architecture)
    tar = root_of(binary, Path(tree), sboms).tar()
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
    sbom = layout.blob(SBOM, sboms["postern.cdx.json"])
    attached = layout.json(MANIFEST, {
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": SBOM, "config": layout.blob(EMPTY, b"{}"),
        "layers": [sbom], "subject": image, "annotations": {"org.opencontainers.image.created": created},
    })  # fmt: skip
    platform = {"architecture": architecture, "os": "linux"}
    image = {**image, "platform": platform, "annotations": {"org.opencontainers.image.ref.name": version}}
    layout.write(Path(file), [image, {**attached, "artifactType": SBOM}])


if __name__ == "__main__":
    main()
