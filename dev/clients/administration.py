"""Keycloak's administration interface, as far as the checks need it. Uses only the standard
library, because client programs import it too."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request

from .report import Fault


class Administration:
    """A running Keycloak, and the credentials of its administrator."""

    def __init__(self, base: str, password: str) -> None:
        self.base = base
        self.password = password
        self._admin = ("", 0.0)

    def tokens(self, realm: str, **form: str) -> dict:
        """The response of the token endpoint."""
        url = f"{self.base}/realms/{realm}/protocol/openid-connect/token"
        return _call("POST", url, {}, urllib.parse.urlencode(form).encode())

    def admin(self, method: str, path: str, content: object = None) -> object:
        """Calls the administration interface; the path is relative to the realm."""
        token, until = self._admin
        if time.monotonic() > until:
            answer = self.tokens("master", grant_type="password", client_id="admin-cli", username="admin", password=self.password)
            token = answer["access_token"]
            self._admin = (token, time.monotonic() + answer["expires_in"] / 2)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = None if content is None else json.dumps(content).encode()
        return _call(method, f"{self.base}/admin/realms{path}", headers, body)

    def add_key(self, realm: str, name: str, priority: int) -> str:
        """Adds a new RSA key that signs from now on. Returns the id of its provider."""
        parent = self.admin("GET", f"/{realm}")["id"]
        config = {"priority": [str(priority)], "algorithm": ["RS256"], "keySize": ["2048"], "enabled": ["true"], "active": ["true"]}
        self.admin("POST", f"/{realm}/components", {
            "name": name, "providerId": "rsa-generated", "providerType": "org.keycloak.keys.KeyProvider",
            "parentId": parent, "config": config,
        })  # fmt: skip
        return self.key_provider(realm, name)["id"]

    def disable_key(self, realm: str, name: str) -> None:
        """Disables a key: it no longer signs, and its signatures become invalid."""
        provider = self.key_provider(realm, name)
        provider["config"]["enabled"] = ["false"]
        self.admin("PUT", f"/{realm}/components/{provider['id']}", provider)

    def key_provider(self, realm: str, name: str) -> dict:
        """Returns a key provider by its name."""
        found = self.admin("GET", f"/{realm}/components?type=org.keycloak.keys.KeyProvider")
        return next(component for component in found if component["name"] == name)


def _call(method: str, url: str, headers: dict[str, str], body: bytes | None) -> dict | list | None:
    request = urllib.request.Request(url, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            content = answer.read()
    except urllib.error.HTTPError as refused:
        raise Fault(f"Keycloak answered {method} {url} with {refused.code}: {refused.read()[:300]!r}") from refused
    return json.loads(content) if content else None
