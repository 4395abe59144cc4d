#!/usr/bin/env python3
"""Revokes tokens at one node of a provider, and measures how long each place still admitted them.

  refusal.py REVOCATIONS SECRET NODE NAME=URL...

NODE issues and revokes the tokens. A place is another node (http://…/introspect, which introspects
the token) or a gateway in front of a service. Each place is queried repeatedly over its own
connection, before and after the revocation. A time is measured from the revocation's response to
the start of the last request that was still admitted; 0 if there was none. Prints a line for each
place: its name, then the median and the longest time in milliseconds. Exit code 1: some place
admitted a token for longer than the bound of 5.005 s, or refused one that was never revoked.
"""

from __future__ import annotations

import base64
import http.client
import json
import statistics
import sys
import threading
import time
from urllib.parse import urlencode, urlsplit

BOUND_S = 5.005


class Place:
    """A node or gateway that admits or refuses tokens."""

    def __init__(self, name: str, url: str, secret: str) -> None:
        self.name, self.url = name, urlsplit(url)
        self.basic = "Basic " + base64.b64encode(f"orders:{secret}".encode()).decode()
        self.connection = http.client.HTTPConnection(self.url.hostname or "", self.url.port, timeout=10)

    def admits(self, token: str) -> bool:
        if self.url.path == "/introspect":
            form = {"Authorization": self.basic, "Content-Type": "application/x-www-form-urlencoded"}
            self.connection.request("POST", "/introspect", urlencode({"token": token}), form)
        else:
            self.connection.request("GET", "/", headers={"Authorization": f"Bearer {token}"})
        answer = self.connection.getresponse()
        body = answer.read()
        if self.url.path == "/introspect":
            return bool(json.loads(body)["active"])
        if answer.status not in (200, 401):
            raise SystemExit(f"{self.name} answered {answer.status}")
        return answer.status == 200


def post(node: str, path: str, secret: str, **form: str) -> bytes:
    url = urlsplit(node)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=10)
    basic = "Basic " + base64.b64encode(f"tool:{secret}".encode()).decode()
    head = {"Authorization": basic, "Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", path, urlencode(form), head)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{node}{path} answered {answer.status}: {body.decode()}")
    return body


def watch(place: Place, token: str, warm: threading.Barrier, last: dict[str, float], over: threading.Event | None = None) -> None:
    """Records when the last admitted request began, until one is refused or `over` is set."""
    while not place.admits(token):
        time.sleep(0.01)
    warm.wait()
    while not (over and over.is_set()):
        asked = time.monotonic()
        if not place.admits(token):
            return
        last[place.name] = asked
        # Without a pause this loop would take the core from the processes that must apply it.
        time.sleep(0.001)


def watched(place: Place, token: str, warm: threading.Barrier, last: dict[str, float], troubles: list[str]) -> None:
    """Runs `watch` in a thread. An error of it must not count as a refusal."""
    try:
        watch(place, token, warm, last)
    except (Exception, SystemExit) as trouble:  # noqa: BLE001
        troubles.append(f"{place.name}: {trouble!r}")
        warm.abort()


def main() -> int:
    revocations, secret, node, *named = sys.argv[1:]
    places = [Place(*name.split("=", 1), secret) for name in named]
    times: dict[str, list[float]] = {place.name: [] for place in places}
    faults = 0
    kept = json.loads(post(node, "/token", secret, grant_type="client_credentials"))["access_token"]
    for _ in range(int(revocations)):
        token = json.loads(post(node, "/token", secret, grant_type="client_credentials"))["access_token"]
        warm = threading.Barrier(len(places) + 1)
        last: dict[str, float] = {}
        troubles: list[str] = []
        arguments = [(place, token, warm, last, troubles) for place in places]
        threads = [threading.Thread(target=watched, args=one, daemon=True) for one in arguments]
        for thread in threads:
            thread.start()
        try:
            warm.wait(30)
        except threading.BrokenBarrierError:
            raise SystemExit(f"not every place admitted a new token within 30 s; {'; '.join(troubles)}") from None
        time.sleep(0.05)
        post(node, "/revoke", secret, token=token)
        revoked = time.monotonic()
        for thread in threads:
            thread.join(30)
        if troubles or any(thread.is_alive() for thread in threads):
            raise SystemExit(f"watching a place failed; {'; '.join(troubles) or 'it still admits after 30 s'}")
        for place in places:
            times[place.name].append(max(0.0, last.get(place.name, revoked) - revoked))
            if not place.admits(kept):
                print(f"{place.name} refused a token that was not revoked", file=sys.stderr)
                faults += 1
    for name, seen in times.items():
        faults += max(seen) > BOUND_S
        print(f"{name} {statistics.median(seen) * 1e3:.1f} {max(seen) * 1e3:.1f}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
