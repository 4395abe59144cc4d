"""Authlib at the provider: a web application with Flask, a resource server, and a client with its
own key."""

from __future__ import annotations

import html
import json
import os
import re
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import requests
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from person import ISSUER, Person
from verdicts import check, equal

APP = os.environ["CLIENTS_APP"]
SECRET = os.environ["CLIENTS_SECRET"]
METADATA = requests.get(f"{ISSUER}/.well-known/openid-configuration", timeout=10).json()
PATIENCE_S = 20

ada = Person("ada")


def told(page: requests.Response, status: int = 200) -> dict:
    """Text of a page of the application."""
    equal("status of the application's page", page.status_code, status)
    found = re.search(r"<pre id=told>(.*)</pre>", page.text, re.DOTALL)
    assert found, f"{page.url} is not a page of the application"
    return json.loads(html.unescape(found[1]))


def ask(person: Person, path: str, status: int = 200) -> dict:
    """What the application knows about a user's browser."""
    return told(person.get(APP + path), status)


def worth(token: str) -> dict:
    """Result of the resource server for a token."""
    with OAuth2Session("orders", SECRET) as orders:
        answer = orders.introspect_token(METADATA["introspection_endpoint"], token=token)
    equal("status of the introspection", answer.status_code, 200)
    return answer.json()


def log_in() -> None:
    """With every parameter that Authlib sends by default. It verifies state, nonce, at_hash and
    signature."""
    claims = told(ada.visit(f"{APP}/login"))["claims"]
    equal("pages", ada.asked, ["password", "decision"])
    equal("iss and aud", (claims["iss"], claims["aud"]), (ISSUER, "shop"))
    missing = {"sub", "sid", "nonce", "auth_time", "exp", "iat"} - claims.keys()
    assert not missing, f"the ID token lacks {missing}"


def silently() -> None:
    """The user is not asked for the same consent twice."""
    claims = told(ada.visit(f"{APP}/login"))["claims"]
    equal("pages", ada.asked, [])
    equal("iss", claims["iss"], ISSUER)
    claims = told(ada.visit(f"{APP}/login?prompt=none"))["claims"]
    equal("pages with prompt=none", ada.asked, [])


def form_post() -> None:
    """The response as a form (form_post)."""
    told(ada.visit(f"{APP}/login?response_mode=form_post"))
    equal("pages", ada.asked, ["return"])


def userinfo() -> None:
    """Claims by scope."""
    claims = ask(ada, "/userinfo")
    equal("sub", claims["sub"], ask(ada, "/")["claims"]["sub"])
    wanted = {
        "name": "Ada Lovelace", "email": "ada@works.example", "email_verified": True, "preferred_username": "ada",
        "groups": ["friends of Ada"],
    }  # fmt: skip
    equal("claims", {name: claims.get(name) for name in wanted}, wanted)


def introspection() -> None:
    """The resource server introspects tokens."""
    access = ask(ada, "/")["tokens"]["access_token"]
    found = worth(access)
    wanted = {"active": True, "client_id": "shop", "iss": ISSUER, "aud": "orders", "sub": ask(ada, "/")["claims"]["sub"]}
    equal("introspection", {name: found.get(name) for name in wanted}, wanted)
    equal("scope", set(found["scope"].split()), {"openid", "profile", "email", "groups", "offline_access", "orders:read"})
    equal("a token that nobody made", worth(access[:-8] + "AAAAAAAA"), {"active": False})


def refresh() -> None:
    """Both tokens are new. Using the old refresh token again revokes the whole grant."""
    person = Person("ada")
    old = told(person.visit(f"{APP}/login"))["tokens"]
    new = ask(person, "/refresh")["tokens"]
    changed = {name for name in ("access_token", "refresh_token") if old[name] != new[name]}
    equal("new", changed, {"access_token", "refresh_token"})
    equal("the new access token", worth(new["access_token"])["active"], True)
    form = {"grant_type": "refresh_token", "refresh_token": old["refresh_token"]}
    again = requests.post(METADATA["token_endpoint"], form, auth=("shop", SECRET), timeout=10)
    equal("the old refresh token again", (again.status_code, again.json().get("error")), (400, "invalid_grant"))
    equal("the new access token then", worth(new["access_token"]), {"active": False})


def revocation() -> None:
    """A revoked token, and tokens derived from it, are invalid."""
    person = Person("ada")
    held = told(person.visit(f"{APP}/login"))["tokens"]
    equal("status", ask(person, "/revoke")["status"], 200)
    equal("the access token", worth(held["access_token"]), {"active": False})
    equal("error of refresh", ask(person, "/refresh", 400)["error"], "invalid_grant")


def refusals() -> None:
    """The application receives the registered error codes."""
    nobody = Person("ada")
    equal("prompt=none", told(nobody.visit(f"{APP}/login?prompt=none"), 400)["error"], "login_required")
    answer = nobody.visit(f"{APP}/login?prompt=consent", decision="deny")
    equal("denied", told(answer, 400)["error"], "access_denied")
    unknown = nobody.get(f"{APP}/login?response_type=token")
    equal("another response type", told(unknown, 400)["error"], "unsupported_response_type")


def code_twice() -> None:
    """Using a code twice revokes the tokens of the first use."""
    with OAuth2Session("shop", SECRET, scope="openid", redirect_uri=f"{APP}/callback", code_challenge_method="S256") as client:
        verifier = "a-verifier-of-sufficient-length-0123456789-abc"
        url, _ = client.create_authorization_url(METADATA["authorization_endpoint"], code_verifier=verifier)
        answer = ada.session.get(url, allow_redirects=False, timeout=10)
        back = answer.headers["location"]
        equal("iss of the answer", parse_qs(urlsplit(back).query)["iss"], [ISSUER])
        token = client.fetch_token(METADATA["token_endpoint"], authorization_response=back, code_verifier=verifier)
        equal("the access token at first", worth(token["access_token"])["active"], True)
        code = parse_qs(urlsplit(back).query)["code"][0]
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": f"{APP}/callback", "code_verifier": verifier}
        again = requests.post(METADATA["token_endpoint"], form, auth=("shop", SECRET), timeout=10)
        equal("the code again", (again.status_code, again.json()["error"]), (400, "invalid_grant"))
        equal("the access token then", worth(token["access_token"]), {"active": False})


def log_out() -> None:
    """Logout through the application. It is also notified by back-channel logout, and ends its own
    session."""
    sid, before = ask(ada, "/")["claims"]["sid"], len(ask(ada, "/heard"))
    bye = told(ada.visit(f"{APP}/logout"))
    equal("pages", ada.asked, [])
    equal("back with its state", bye["bye"]["post_logout_redirect_uri"], f"{APP}/bye")
    deadline = time.monotonic() + PATIENCE_S
    while len(ask(ada, "/heard")) == before:
        assert time.monotonic() < deadline, f"no logout token came within {PATIENCE_S} s"
        time.sleep(0.1)
    came = ask(ada, "/heard")[before]
    assert "claims" in came, f"the logout token is none: {came['fault']}"
    equal("sid", came["claims"]["sid"], sid)
    assert came["ended"] >= 1, "no session of the application had that sid"
    equal("who is logged in at the application", ask(ada, "/")["claims"], None)
    equal("prompt=none afterwards", told(ada.visit(f"{APP}/login?prompt=none"), 400)["error"], "login_required")


def key_client() -> None:
    """private_key_jwt. The access token is verified with the provider's keys alone (RFC 9068)."""
    key = RSAKey.import_key(Path(os.environ["CLIENTS_ROBOT_KEY"]).read_text(), {"kid": os.environ["CLIENTS_ROBOT_KEY_ID"]})
    endpoint = METADATA["token_endpoint"]
    with OAuth2Session("robot", key, token_endpoint_auth_method="private_key_jwt") as robot:
        robot.register_client_auth_method(PrivateKeyJWT(endpoint))
        answer = robot.fetch_token(endpoint, grant_type="client_credentials", scope="orders:write")
    equal("scope", answer["scope"], "orders:write")
    keys = KeySet.import_key_set(requests.get(METADATA["jwks_uri"], timeout=10).json())
    token = jwt.decode(answer["access_token"], keys, algorithms=["ES256"])
    equal("typ", token.header["typ"], "at+jwt")
    found = {name: token.claims.get(name) for name in ("iss", "sub", "aud", "client_id", "groups")}
    wanted = {"iss": ISSUER, "sub": "robot", "aud": "orders", "client_id": "robot", "groups": ["robots"]}
    equal("claims", found, wanted)
    equal("introspection", worth(answer["access_token"])["active"], True)


CHECKS = {
    "discovery, code flow with PKCE and nonce, consent": log_in,
    "a second login is silent, also with prompt=none": silently,
    "response mode form_post": form_post,
    "userinfo": userinfo,
    "a resource server introspects": introspection,
    "refresh; the old token used again ends the grant": refresh,
    "revoke_token ends what came of a refresh token": revocation,
    "login_required, access_denied, unsupported_response_type": refusals,
    "a code counts once": code_twice,
    "logout by the application, back with its state; logout token by the back channel": log_out,
    "private_key_jwt and an access token of RFC 9068": key_client,
}

for name, run in CHECKS.items():
    check(name, run)
