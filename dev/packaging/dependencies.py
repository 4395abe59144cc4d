"""Writes what the program is made of: two SBOMs and the licences of all dependencies.

    dependencies.py VERSION COMMIT FEATURES FOLDER

Files in FOLDER: postern.cdx.json (CycloneDX 1.6), postern.spdx.json (SPDX 2.3) and
THIRD-PARTY-LICENSES.txt. Both SBOMs are validated against their schema. The dependencies are those
that Cargo compiles for the program with these features (kubernetes,lab) on this platform, without
tests, and the standard library of Rust, which the compiler brings. Times are SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import platform
import re
import subprocess
import sys
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.contrib.hash.factories import HashTypeFactory
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from spdx_tools.spdx.model import (
    Actor, ActorType, CreationInfo, Document, ExternalPackageRef, ExternalPackageRefCategory, Package, Relationship,
    RelationshipType, SpdxNoAssertion,
)  # fmt: skip
from spdx_tools.common.spdx_licensing import spdx_licensing
from spdx_tools.spdx.writer.write_anything import write_file

# The program runs where the standard library of this platform does.
PLATFORM = f"{platform.machine()}-unknown-linux-gnu"
NAMES = ("license", "licence", "copying", "notice", "copyright", "unlicense")


@dataclass(frozen=True)
class Crate:
    id: str
    name: str
    version: str
    license: str
    repository: str | None
    folder: Path
    checksum: str | None


def compiled(features: str) -> tuple[Crate, list[Crate], dict[str, list[str]]]:
    """The program, its dependencies in order of their names, and who needs whom, by id."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM]
    command += ["--features", ",".join(f"postern/{feature}" for feature in features.split(","))]
    data = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    packages = {package["id"]: package for package in data["packages"]}
    chosen = compiled_names(features)
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    root = next(id for id, package in packages.items() if package["name"] == "postern")
    edges: dict[str, list[str]] = {}
    pending = [root]
    while pending:
        id = pending.pop()
        if id in edges:
            continue
        shipped = (dep for dep in nodes[id]["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"]))
        # The metadata have the features that all programs of the workspace together need.
        known = ((packages[dep["pkg"]]["name"], packages[dep["pkg"]]["version"], dep["pkg"]) for dep in shipped)
        edges[id] = sorted(package for name, version, package in known if (name, version) in chosen)
        pending += edges[id]
    sums = checksums()
    crates = {id: crate(packages[id], sums) for id in edges}
    others = sorted((one for id, one in crates.items() if id != root), key=lambda one: (one.name, one.version))
    return crates[root], others, edges


def compiled_names(features: str) -> set[tuple[str, str]]:
    """Names and versions of what Cargo compiles for the program."""
    command = ["cargo", "tree", "--locked", "-p", "postern", "--features", features, "-e", "normal,build", "--target", PLATFORM]
    tree = subprocess.run([*command, "--prefix", "none"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"^(\S+) v(\S+)", tree, re.M))


def checksums() -> dict[tuple[str, str], str]:
    import tomllib

    lock = tomllib.loads(Path("Cargo.lock").read_text())
    return {(one["name"], one["version"]): one["checksum"] for one in lock["package"] if "checksum" in one}


def rustc(*arguments: str) -> str:
    return subprocess.run(["rustc", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def compiler() -> str:
    """Name and version of the compiler, with its commit."""
    return rustc("--version")


def standard_library() -> Crate:
    version = compiler().split()[1]
    return Crate("std", "std", version, "Apache-2.0 OR MIT", "https://github.com/rust-lang/rust", Path(rustc("--print", "sysroot")), None)


def standard_licenses() -> str:
    """Copyright notices of the standard library and of what is built into it, without their markup."""
    page = Path(rustc("--print", "sysroot")) / "share/doc/rust/COPYRIGHT-library.html"
    if not page.exists():
        sys.exit(f"{page} is missing: install the component `rustc` of the toolchain whole")
    body = re.sub(r"(?s)<(head|style|script)\b.*?</\1>", "", page.read_text())
    lines = html.unescape(re.sub(r"<[^>]*>", "", body)).splitlines()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


def crate(package: dict, sums: dict[tuple[str, str], str]) -> Crate:
    # An older form of "OR".
    license = (package["license"] or "NOASSERTION").replace("/", " OR ")
    return Crate(
        package["id"], package["name"], package["version"], license, package["repository"],
        Path(package["manifest_path"]).parent, sums.get((package["name"], package["version"])),
    )  # fmt: skip


def is_foreign(crate: Crate) -> bool:
    return crate.checksum is not None


def cyclonedx(root: Crate, crates: list[Crate], edges: dict[str, list[str]], now: datetime, seed: str) -> str:
    licenses = LicenseFactory()

    def component(crate: Crate, kind: ComponentType) -> Component:
        references = [ExternalReference(type=ExternalReferenceType.VCS, url=XsUri(crate.repository))] if crate.repository else []
        return Component(
            name=crate.name, version=crate.version, type=kind, bom_ref=f"{crate.name}@{crate.version}",
            purl=PackageURL("cargo", None, crate.name, crate.version) if is_foreign(crate) else None,
            licenses=[] if crate.license == "NOASSERTION" else [licenses.make_from_string(crate.license)],
            hashes=[HashTypeFactory().from_composite_str(f"sha256:{crate.checksum}")] if crate.checksum else [],
            external_references=references,
        )  # fmt: skip

    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, seed))
    bom.metadata.timestamp = now
    program = component(root, ComponentType.APPLICATION)
    program.properties.add(Property(name="postern:compiler", value=compiler()))
    bom.metadata.component = program
    by_id = {root.id: program} | {crate.id: component(crate, ComponentType.LIBRARY) for crate in crates}
    for crate in crates:
        bom.components.add(by_id[crate.id])
    for id, needed in edges.items():
        bom.register_dependency(by_id[id], [by_id[other] for other in needed])
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault:
        sys.exit(f"the CycloneDX document is not valid: {fault}")
    return text


def spdx(root: Crate, crates: list[Crate], edges: dict[str, list[str]], now: datetime, seed: str, path: Path) -> None:
    def reference(crate: Crate) -> str:
        plain = "".join(c if c.isalnum() or c in ".-" else "-" for c in f"{crate.name}-{crate.version}")
        return f"SPDXRef-{plain}"

    def package(crate: Crate) -> Package:
        locator = f"pkg:cargo/{crate.name}@{crate.version}"
        purl = ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", locator)
        known = crate.license != "NOASSERTION"
        return Package(
            spdx_id=reference(crate), name=crate.name, version=crate.version,
            download_location=SpdxNoAssertion(), files_analyzed=False,
            license_declared=spdx_licensing.parse(crate.license) if known else SpdxNoAssertion(),
            external_references=[purl] if is_foreign(crate) else [],
        )  # fmt: skip

    creation = CreationInfo(
        spdx_version="SPDX-2.3", spdx_id="SPDXRef-DOCUMENT", name=f"postern-{root.version}", data_license="CC0-1.0",
        document_namespace=f"https://postern.example/spdx/{uuid.uuid5(uuid.NAMESPACE_URL, seed)}",
        creators=[Actor(ActorType.ORGANIZATION, "Postern maintainers")], created=now,
        creator_comment=f"Compiler: {compiler()}",
    )  # fmt: skip
    by_id = {crate.id: crate for crate in [root, *crates]}
    relations = [Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES, reference(root))]
    relations += [
        Relationship(reference(by_id[id]), RelationshipType.DEPENDS_ON, reference(by_id[other]))
        for id in sorted(edges) for other in edges[id]
    ]  # fmt: skip
    # Writing validates.
    write_file(Document(creation, packages=[package(one) for one in [root, *crates]], relationships=relations), str(path))


def license_texts(crate: Crate) -> list[tuple[str, str]]:
    """Licence files, by their path in the crate. Crates that bundle a C library have it in a folder of
    its own."""
    depth = 4 if crate.name.endswith("-sys") else 1
    found = []
    for path in sorted(crate.folder.rglob("*")):
        name, place = path.name.lower(), path.relative_to(crate.folder)
        if len(place.parts) <= depth and name.startswith(NAMES) and path.suffix.lower() not in (".rs", ".h", ".c", ".py") and path.is_file():
            found.append((str(place), path.read_text(errors="replace").strip()))
    return found


def licenses(crates: list[Crate]) -> str:
    users: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    lines = ["The program contains the following packages of others, under these licences.", ""]
    for crate in crates:
        if not is_foreign(crate):
            continue
        found = license_texts(crate)
        note = ""
        if not found:
            # The text of that licence is there anyway.
            if "Apache-2.0" not in crate.license:
                sys.exit(f"{crate.name} {crate.version} has no licence file, and {crate.license} has no text here: add it")
            note = " (it has no licence file; used under Apache-2.0, as Postern itself)"
        lines.append(f"{crate.name} {crate.version}: {crate.license}{note}")
        for place, text in found:
            digest = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
            texts.setdefault(digest, text)
            users.setdefault(digest, []).append(f"{crate.name} {crate.version} ({place})")
    lines.append(f"std {standard_library().version}: {standard_library().license}")
    for digest, text in texts.items():
        lines += ["", "=" * 100, *users[digest], "-" * 100, text]
    lines += ["", "=" * 100, f"std {standard_library().version} (COPYRIGHT-library.html)", "-" * 100, standard_licenses()]
    return "\n".join(lines) + "\n"


def main() -> None:
    version, commit, features, folder = *sys.argv[1:4], Path(sys.argv[4])
    now = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    root, crates, edges = compiled(features)
    library = standard_library()
    crates = sorted([*crates, library], key=lambda one: (one.name, one.version))
    edges = edges | {root.id: [*edges[root.id], library.id], library.id: []}
    seed = f"https://postern.example/{version}/{commit}/{features}"
    (folder / "postern.cdx.json").write_text(cyclonedx(root, crates, edges, now, seed) + "\n")
    spdx(root, crates, edges, now.replace(tzinfo=None), seed, folder / "postern.spdx.json")
    (folder / "THIRD-PARTY-LICENSES.txt").write_text(licenses(crates))


if __name__ == "__main__":
    main()
