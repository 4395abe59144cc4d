"""A device client (RFC 8628) that can only send requests."""

from __future__ import annotations

import time

import requests
from person import ISSUER, PASSWORD, Person
from verdicts import check, equal

METADATA = requests.get(f"{ISSUER}/.well-known/oauth-authorization-server", timeout=10).json()
GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class Tv:
    """A device that shows a code."""

    def __init__(self) -> None:
        form = {"client_id": "tv", "scope": "openid profile offline_access"}
        answer = requests.post(METADATA["device_authorization_endpoint"], form, timeout=10)
        equal("status", answer.status_code, 200)
        self.shown = answer.json()

    def poll(self) -> dict:
        """Asks for the tokens once."""
        form = {"client_id": "tv", "grant_type": GRANT, "device_code": self.shown["device_code"]}
        return requests.post(METADATA["token_endpoint"], form, timeout=10).json()

    def wait(self) -> None:
        """Waits as long as the provider's interval says."""
        time.sleep(self.shown["interval"] + 0.2)


def decide(carol: Person, tv: Tv, decision: str, typed: str | None = None) -> None:
    """Types the code at the address that the device shows, and decides."""
    page = carol.get(tv.shown["verification_uri"])
    page = carol.submit(page, user_code=typed or tv.shown["user_code"])
    if 'name="password"' in page.text:
        page = carol.submit(page, username=carol.name, password=PASSWORD)
    assert tv.shown["user_code"] in page.text, f"the page does not show the code of the device: {page.url}"
    assert "Living Room TV" in page.text, "the page does not name the device's client"
    page = carol.submit(page, decision=decision)
    equal("status of the last page", page.status_code, 200)


def main() -> None:
    """Three devices wait at the same time."""
    allowed, denied, hasty = Tv(), Tv(), Tv()
    carol = Person("carol")

    def pending() -> None:
        equal("first poll", allowed.poll()["error"], "authorization_pending")
        equal("first poll of another", hasty.poll()["error"], "authorization_pending")
        equal("a poll too soon", hasty.poll()["error"], "slow_down")

    def completes() -> None:
        typed = allowed.shown["user_code"].lower().replace("-", " ")
        decide(carol, allowed, "allow", typed)
        decide(carol, denied, "deny")
        allowed.wait()
        token = allowed.poll()
        assert "access_token" in token, f"no tokens: {token}"
        bearer = {"authorization": f"Bearer {token['access_token']}"}
        claims = requests.get(f"{ISSUER}/userinfo", headers=bearer, timeout=10)
        equal("name", claims.json().get("name"), "Carol Shaw")
        form = {"client_id": "tv", "grant_type": "refresh_token", "refresh_token": token["refresh_token"]}
        equal("status of refresh", requests.post(METADATA["token_endpoint"], form, timeout=10).status_code, 200)

    def refused() -> None:
        equal("poll after the denial", denied.poll()["error"], "access_denied")
        page = carol.get(METADATA["issuer"] + "/device")
        page = carol.submit(page, user_code="BBBB-BBBB")
        assert "No device waits with this code" in page.text, "a wrong code is not told"

    check("a television is told to wait, and to ask less often", pending)
    check("code typed in lower case, login, allowed: tokens, userinfo, refresh", completes)
    check("denied and unknown codes", refused)


main()
