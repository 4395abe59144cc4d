"""The same requests to oauth2-proxy and to the gateway that took over its settings. Prints what
became of each as one JSON object: name → status, redirect, answer headers, and what reached the
service."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
from urllib.parse import parse_qs, urlencode, urlsplit

import requests
from person import ISSUER, Person

PORT = int(os.environ["CLIENTS_PORT"])
BASE = f"http://127.0.0.1:{PORT}"
TOKENS = json.loads(os.environ["CLIENTS_TOKENS"])
BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
PROGRAM = {"Accept": "*/*"}
JSON = {"Accept": "application/json"}
SPOOFED = {
    "X-Forwarded-User": "root", "X-Forwarded-Email": "root@works.example", "X-Forwarded-Groups": "wheel",
    "X-Forwarded-Access-Token": "forged", "X-Forwarded-Preferred-Username": "root",
}  # fmt: skip
SPOOFED_CHECK = {"X-Auth-Request-User": "root", "X-Auth-Request-Email": "root@works.example"}
# What an answer or a forwarded request says of the caller.
IDENTITY = re.compile("x-forwarded-(user|email|groups|preferred-username|access-token)|x-auth-request-.*|authorization")


# The gateway's cookies.
GATEWAY = {"postern", "postern-login"}


def basic(user: str, password: str) -> dict[str, str]:
    """A user name and a password."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def bearer(name: str) -> dict[str, str]:
    """A token of the provider."""
    return {"Authorization": f"Bearer {TOKENS[name]}"}


def kind_of(value: str) -> str:
    """A header's value, where a token counts by its kind."""
    if re.fullmatch(r"Bearer [\w-]+\.[\w-]+\.[\w-]+", value):
        return "Bearer JWT"
    if re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", value) and len(value) > 100:
        return "JWT"
    if re.fullmatch(r"[\w-]{22}", value):
        return "the subject"
    return "Basic" if value.startswith("Basic ") else value


def identity(fields: list[tuple[str, str]]) -> dict[str, str]:
    """The headers that say who the caller is. An empty one is none."""
    return {name.lower(): kind_of(value) for name, value in fields if IDENTITY.fullmatch(name.lower()) and value}


def where(location: str | None) -> str | None:
    """The kind of a redirect."""
    if location is None:
        return None
    to = urlsplit(location)
    if to.netloc not in ("", f"127.0.0.1:{PORT}", urlsplit(ISSUER).netloc):
        return f"another host: {to.netloc}"
    if location.startswith(ISSUER):
        return "sign in" if to.path == "/authorize" else f"the provider's {to.path}"
    if to.path in ("/oauth2/start", "/oauth2/sign_in"):
        return "sign in"
    return to.path + (f"?{to.query}" if to.query else "")


def observed(status: int, fields: list[tuple[str, str]], body: bytes) -> dict[str, object]:
    """What a client and the service see of an exchange."""
    told: dict[str, object] = {"status": status}
    location = next((value for name, value in fields if name.lower() == "location"), None)
    if location is not None:
        told["to"] = where(location)
    if answer := identity(fields):
        told["answer"] = answer
    try:
        arrived = json.loads(body)
    except ValueError:
        return told
    if isinstance(arrived, dict) and "target" in arrived and "headers" in arrived:
        own = [crumb.split("=")[0].strip() for name, value in arrived["headers"] if name.lower() == "cookie" for crumb in value.split(";")]
        told["service"] = {
            "request": f"{arrived['method']} {arrived['target']}", "identity": identity(arrived["headers"]),
            "cookies": "a session" if any(name.startswith("_oauth2_proxy") or name in GATEWAY for name in own) else "none of the proxy",
        }  # fmt: skip
    elif isinstance(arrived, dict) and "user" in arrived:
        told["user"] = {key: arrived.get(key) for key in ("email", "groups", "preferredUsername")}
    return told


def send(method: str, target: str, headers: dict[str, str], cookies: requests.Session | None = None) -> dict[str, object]:
    """One request with exactly this target."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=20)
    fields = dict(headers)
    if cookies is not None:
        fields["Cookie"] = "; ".join(f"{c.name}={c.value}" for c in cookies.cookies if "127.0.0.1" in c.domain and c.name not in OF_PROVIDER)
    body = b"a=b" if method in ("POST", "PUT") else None
    if body:
        fields["Content-Type"] = "application/x-www-form-urlencoded"
    connection.request(method, target, body=body, headers=fields)
    answer = connection.getresponse()
    seen = observed(answer.status, answer.getheaders(), answer.read())
    connection.close()
    return seen


# Cookies know no ports: those of the provider, at the same host.
OF_PROVIDER: set[str] = set()


def signed_in(name: str) -> tuple[Person, requests.Response]:
    """A person who has signed in, and the page where that ends."""
    person = Person(name)
    person.session.headers.update(BROWSER)
    person.get(f"{ISSUER}/account")
    OF_PROVIDER.update(cookie.name for cookie in person.session.cookies)
    page = person.visit(f"{BASE}/begin")
    return person, page


def id_token(name: str) -> str:
    """An ID token that a person's program has."""
    tool = {"client_id": "tool", "redirect_uri": os.environ["CLIENTS_TOOL"]}
    query = urlencode(tool | {"response_type": "code", "scope": "openid profile email groups", "state": "x", "nonce": "y"})
    page = Person(name).visit(f"{ISSUER}/authorize?{query}")
    code = parse_qs(urlsplit(page.json()["target"]).query)["code"][0]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": tool["redirect_uri"]}
    answer = requests.post(f"{ISSUER}/token", form, auth=("tool", os.environ["CLIENTS_SECRET"]), timeout=20)
    return answer.json()["id_token"]


def main() -> None:
    """Forty requests, in order: the last ones end the session."""
    TOKENS["good"], TOKENS["group"] = id_token("ada"), id_token("bob")
    head, _, signature = TOKENS["good"].rpartition(".")
    TOKENS["forged"] = f"{head}.{signature[::-1]}"
    seen: dict[str, object] = {}
    nobody = {
        "a page, by a browser": ("GET", "/page?x=y", BROWSER),
        "a page, by a program": ("GET", "/page", PROGRAM),
        "a page, by a script that wants JSON": ("GET", "/page", JSON),
        "a form, by a browser": ("POST", "/form", BROWSER),
        "an API path, by a browser": ("GET", "/api/orders", BROWSER),
        "an API path, by a program": ("GET", "/api/orders", PROGRAM),
        "an open path": ("GET", "/assets/a.css", PROGRAM),
        "an open path, with another method": ("POST", "/assets/a.css", JSON),
        "an open path, with a forged identity": ("GET", "/assets/a.css", SPOOFED),
        "an open path, with a forged answer": ("GET", "/assets/a.css", SPOOFED_CHECK),
        "an exact open path": ("GET", "/healthz", PROGRAM),
        "below an exact open path": ("GET", "/healthz/more", JSON),
        "an open path by a pattern": ("POST", "/hooks/push", JSON),
        "out of an open path, with dots": ("GET", "/assets/../page", JSON),
        "out of an open path, with escaped dots": ("GET", "/assets/%2e%2e/page", JSON),
        "ping": ("GET", "/ping", PROGRAM),
        "ready": ("GET", "/ready", PROGRAM),
        "robots.txt": ("GET", "/robots.txt", PROGRAM),
        "the check": ("GET", "/oauth2/auth", BROWSER),
        "who it is": ("GET", "/oauth2/userinfo", JSON),
        "a trusted address": ("GET", "/page", JSON | {"X-Forwarded-For": "203.0.113.9"}),
    }
    for name, (method, target, headers) in nobody.items():
        seen[f"nobody: {name}"] = send(method, target, headers)
    ada, page = signed_in("ada")
    seen["ada: signs in"] = observed(page.status_code, list(page.headers.items()), page.content)
    session = {
        "a page": ("GET", "/page?x=y", BROWSER),
        "another service": ("GET", "/api/orders", JSON),
        "a forged identity": ("GET", "/page", BROWSER | SPOOFED),
        "the check": ("GET", "/oauth2/auth", BROWSER),
        "the check of a group she has": ("GET", "/oauth2/auth?allowed_groups=staff,other", BROWSER),
        "the check of a group she has not": ("GET", "/oauth2/auth?allowed_groups=admins", BROWSER),
        "a page with the check's parameter": ("GET", "/page?allowed_groups=admins", BROWSER),
        "who it is": ("GET", "/oauth2/userinfo", JSON),
    }
    for name, (method, target, headers) in session.items():
        seen[f"ada: {name}"] = send(method, target, headers, ada.session)
    for name, target, headers in [
        ("a good token, an API path", "/api/orders", bearer("good") | JSON),
        ("a good token, the check", "/oauth2/auth", bearer("good")),
        ("an expired token", "/api/orders", bearer("expired") | JSON),
        ("a token for another audience", "/api/orders", bearer("audience") | JSON),
        ("a token without the group", "/api/orders", bearer("group") | JSON),
        ("a token with a bad signature", "/api/orders", bearer("forged") | JSON),
    ]:
        seen[f"a program: {name}"] = send("GET", target, headers)
    seen["a program: a password"] = send("GET", "/page", basic("scraper", os.environ["CLIENTS_SCRAPER"]) | JSON)
    bob, page = signed_in("bob")
    seen["bob, without the group: signs in"] = {"status": page.status_code}
    seen["bob, without the group: the check"] = send("GET", "/oauth2/auth", BROWSER, bob.session)
    seen["ada: signs out, to another host"] = send("GET", "/oauth2/sign_out?rd=https%3A%2F%2Felsewhere.example%2F", BROWSER, ada.session)
    print(json.dumps(seen))


main()
