"""Lists a resource of the API server and follows its changes.

Owns: connection, resource version, and a new list after an interruption.
Does not own: what a change means; the callbacks run on the watch's thread and return at once.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable

from clients.cluster import Cluster

# The server ends a watch after this time; then it is opened again.
WATCH_S = 600
RETRY_S = 0.2
Key = tuple[str, str]


def key(found: dict) -> Key:
    """Namespace and name of an object; the namespace is empty for kinds without."""
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


class Watch(threading.Thread):
    """Follows one resource in all namespaces."""

    def __init__(
        self, cluster: Cluster, path: str, changed: Callable[[dict], None], deleted: Callable[[dict], None]
    ) -> None:
        super().__init__(name=f"watch {path}", daemon=True)
        self._cluster, self._path = cluster, path
        self._changed, self._deleted = changed, deleted
        self._known: dict[Key, dict] = {}
        self._context = ssl.create_default_context(cafile=str(cluster.ca))

    def run(self) -> None:
        """Until the process ends."""
        while True:
            try:
                self._follow(self._list())
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(RETRY_S)

    def _list(self) -> str:
        """Reads all objects. Returns their resource version."""
        status, answer = self._cluster.call("GET", self._path)
        if status != http.client.OK:
            raise OSError(f"{self._path}: {status}")
        found = {key(one): one for one in answer["items"]}
        for gone in self._known.keys() - found.keys():
            self._deleted(self._known[gone])
        self._known = found
        for one in found.values():
            self._changed(one)
        return answer["metadata"]["resourceVersion"]

    def _follow(self, version: str) -> None:
        """Passes changes on until the connection or the version ends."""
        host = self._cluster.base.removeprefix("https://")
        connection = http.client.HTTPSConnection(host, context=self._context, timeout=WATCH_S + 60)
        try:
            path = f"{self._path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion="
            while True:
                headers = {"Authorization": f"Bearer {self._cluster.admin}"}
                connection.request("GET", path + version, headers=headers)
                answer = connection.getresponse()
                if answer.status != http.client.OK:
                    return
                for line in answer:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._event(event["type"], event["object"])
        finally:
            connection.close()

    def _event(self, kind: str, found: dict) -> None:
        if kind == "DELETED":
            self._known.pop(key(found), None)
            self._deleted(found)
        elif kind != "BOOKMARK":
            self._known[key(found)] = found
            self._changed(found)
