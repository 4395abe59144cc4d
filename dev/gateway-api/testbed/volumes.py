"""Volumes of a pod: folders with the content of Secrets, ConfigMaps, tokens and fields of the pod, and
the mounts that put them where the containers read them.

Owns: content of volumes at the start of a pod. A later change of a Secret does not reach it.
Does not own: the mount namespace (pod).
"""

from __future__ import annotations

import base64
import re
import shlex
from pathlib import Path

from clients.cluster import Cluster

from .watch import key

ACCOUNT_FILES = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_S = 7 * 24 * 3600


class Missing(Exception):
    """An object that a pod needs is not there yet."""


class Unsupported(Exception):
    """Something that this kubelet does not do. The message names it."""


def values(cluster: Cluster, namespace: str, resource: str, name: str, optional: bool = False) -> dict[str, bytes]:
    """Content of a Secret (`secrets`) or ConfigMap (`configmaps`). Raises Missing."""
    status, found = cluster.call("GET", f"/api/v1/namespaces/{namespace}/{resource}/{name}")
    if status != 200:
        if optional:
            return {}
        raise Missing(f"{resource}/{name} of {namespace}: {found.get('message', status)}")
    data = found.get("data") or {}
    if resource == "secrets":
        return {one: base64.b64decode(text) for one, text in data.items()}
    binary = {one: base64.b64decode(text) for one, text in (found.get("binaryData") or {}).items()}
    return {one: text.encode() for one, text in data.items()} | binary


def field(pod: dict, path: str) -> str:
    """A field of the pod (downward API)."""
    found = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if found:
        return pod["metadata"].get(found[1], {}).get(found[2], "")
    value: object = pod
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    if not isinstance(value, str):
        raise Unsupported(f"the field {path} as a text")
    return value


def _chosen(found: dict[str, bytes], items: list[dict] | None) -> dict[str, bytes]:
    """The files of `items`, or all."""
    if not items:
        return found
    absent = [item["key"] for item in items if item["key"] not in found]
    if absent:
        raise Missing(f"the keys {', '.join(absent)}")
    return {item["path"]: found[item["key"]] for item in items}


def mode(volume: dict) -> int:
    """File mode of a volume's files."""
    return next((one["defaultMode"] for one in volume.values() if isinstance(one, dict) and "defaultMode" in one), 0o644)


class Volumes:
    """The volumes of one pod."""

    def __init__(self, cluster: Cluster, pod: dict, folder: Path) -> None:
        self._cluster, self._pod, self._folder = cluster, pod, folder
        self._namespace, _ = key(pod)

    def create(self) -> str:
        """Creates all volumes. Returns the shell commands that mount them. Raises Missing or
        Unsupported."""
        volumes = {volume["name"]: volume for volume in self._pod["spec"].get("volumes") or []}
        contents = {name: self._content(volume) for name, volume in volumes.items()}
        mounts: dict[str, str] = {}
        for container in self._pod["spec"]["containers"]:
            for mount in container.get("volumeMounts") or []:
                inside = mount.get("subPath", "")
                if mounts.setdefault(mount["mountPath"], f"{mount['name']}/{inside}") != f"{mount['name']}/{inside}":
                    raise Unsupported(f"two containers with different volumes at {mount['mountPath']}")
        account = self._pod["spec"].get("serviceAccountName")
        if account and self._pod["spec"].get("automountServiceAccountToken") is not False:
            contents["-account"] = self._account(account) | self._trust()
            mounts.setdefault(ACCOUNT_FILES, "-account/")
        for name, files in contents.items():
            for path, data in files.items():
                file = self._folder / name / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
                file.chmod(mode(volumes.get(name, {})))
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        return self._mounts({path: self._folder / source for path, source in mounts.items()})

    def _content(self, volume: dict) -> dict[str, bytes]:
        if "emptyDir" in volume:
            return {}
        if "projected" in volume:
            files: dict[str, bytes] = {}
            for source in volume["projected"]["sources"]:
                files |= self._source(source, "name")
            return files
        return self._source(volume, "secretName")

    def _source(self, source: dict, secret_name: str) -> dict[str, bytes]:
        """Files of a Secret, a ConfigMap, a token or fields of the pod."""
        if "secret" in source:
            named = source["secret"]
            return self._named("secrets", named[secret_name], named)
        if "configMap" in source:
            return self._named("configmaps", source["configMap"]["name"], source["configMap"])
        if "serviceAccountToken" in source:
            wanted = source["serviceAccountToken"]
            account = self._pod["spec"].get("serviceAccountName") or "default"
            return {wanted["path"]: self._account(account, wanted.get("audience"))["token"]}
        if "downwardAPI" in source:
            items = source["downwardAPI"]["items"]
            return {item["path"]: field(self._pod, item["fieldRef"]["fieldPath"]).encode() for item in items}
        kind = ", ".join(one for one in source if one != "name")
        raise Unsupported(f"volumes of the type {kind}")

    def _named(self, resource: str, name: str, named: dict) -> dict[str, bytes]:
        found = values(self._cluster, self._namespace, resource, name, named.get("optional", False))
        return _chosen(found, named.get("items") if found or not named.get("optional") else None)

    def _account(self, name: str, audience: str | None = None) -> dict[str, bytes]:
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{name}"
        if self._cluster.call("GET", path)[0] != 200:
            raise Missing(f"the ServiceAccount {name} of {self._namespace}")
        token = self._cluster.token(self._namespace, name, audience, TOKEN_S)
        return {"token": token.encode()}

    def _trust(self) -> dict[str, bytes]:
        return {"ca.crt": self._cluster.ca.read_bytes(), "namespace": self._namespace.encode()}

    def _mounts(self, sources: dict[str, Path]) -> str:
        """Mounts folders or files at paths. Where a path does not exist, the nearest existing folder
        gets a layer in memory first, so nothing is written to the machine's own."""
        layers, places, binds = set(), [], []
        for path, source in sources.items():
            target = shlex.quote(path)
            binds.append(f"mount --bind {shlex.quote(str(source))} {target}")
            if Path(path).exists():
                continue
            places.append(f"mkdir -p {target if source.is_dir() else shlex.quote(str(Path(path).parent))}")
            if not source.is_dir():
                places.append(f"touch {target}")
            existing = next(one for one in Path(path).parents if one.exists()).resolve()
            if str(existing) == "/":
                raise Unsupported(f"a volume at {path}, which is directly below /; use a path below /etc, /srv or /var")
            layers.add(existing)
        layered = []
        for number, existing in enumerate(sorted(layers)):  # a folder before those inside it
            layer = self._folder / f"-layer{number}"
            for part in ("upper", "work"):
                (layer / part).mkdir(parents=True)
            options = f"lowerdir={existing},upperdir={layer}/upper,workdir={layer}/work"
            layered.append(f"mount -t overlay -o {shlex.quote(options)} overlay {shlex.quote(str(existing))}")
        return "".join(f"{line}\n" for line in layered + places + binds)
