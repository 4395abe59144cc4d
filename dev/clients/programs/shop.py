"""A web application with an OpenID login, with Authlib and Flask.

At `/` it shows, as JSON in a page, what it knows about the user. Other addresses make it do what
such applications do: refresh, revoke, sign out. Sessions are kept here and end when the provider
says so.
"""

from __future__ import annotations

import json
import os
import secrets
import time

from authlib.integrations.base_client import OAuthError
from authlib.integrations.flask_client import OAuth
from flask import Flask, Response, redirect, request, session
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from markupsafe import escape

ISSUER = os.environ["CLIENTS_ISSUER"]
APP = os.environ["CLIENTS_APP"]
EVENT = "http://schemas.openid.net/event/backchannel-logout"
SCOPE = "openid profile email groups offline_access orders:read"

app = Flask(__name__)
app.secret_key = secrets.token_bytes(32)
# No SameSite: the form_post response comes from another site, and must find the state of its
# request.
app.config.update(SESSION_COOKIE_NAME="shop")
oauth = OAuth(app)
provider = oauth.register(
    "shop", client_id="shop", client_secret=os.environ["CLIENTS_SECRET"],
    server_metadata_url=f"{ISSUER}/.well-known/openid-configuration",
    client_kwargs={"scope": SCOPE, "code_challenge_method": "S256"},
)  # fmt: skip

# Tokens of each browser, and the logout tokens that arrived, with their errors.
kept: dict[str, dict] = {}
heard: list[dict] = []


def page(told: object, status: int = 200) -> Response:
    """A page with JSON, for users and programs."""
    text = escape(json.dumps(told))
    markup = f"<!doctype html><html lang=en><title>The Shop</title><h1>The Shop</h1><pre id=told>{text}</pre></html>"
    return Response(markup, status, mimetype="text/html")


def tokens() -> dict:
    """The tokens of the requesting browser."""
    return kept.get(session.get("id", ""), {})


@app.errorhandler(OAuthError)
def refused(error: OAuthError) -> Response:
    """The error code of the provider."""
    return page({"error": error.error, "description": error.description}, 400)


@app.get("/")
def home() -> Response:
    """The logged-in user."""
    return page({"claims": tokens().get("userinfo"), "tokens": tokens()})


@app.get("/login")
def login() -> Response:
    """Redirects to the provider with the query's parameters, except `then`, which is the final
    page."""
    asked = request.args.to_dict()
    session["then"] = asked.pop("then", "/")
    return provider.authorize_redirect(f"{APP}/callback", nonce=secrets.token_urlsafe(16), **asked)


@app.route("/callback", methods=["GET", "POST"])
def callback() -> Response:
    """The callback, by query or by form."""
    token = provider.authorize_access_token()
    session["id"] = secrets.token_urlsafe(16)
    kept[session["id"]] = dict(token)
    return redirect(session.pop("then", "/"), 303)


@app.get("/userinfo")
def userinfo() -> Response:
    """The provider's userinfo for the access token."""
    return page(provider.userinfo(token=tokens()))


@app.get("/refresh")
def refresh() -> Response:
    """Refreshes the tokens."""
    with provider._get_oauth_client() as client:  # the only way to the OAuth2Session of this registration
        new = client.refresh_token(provider.load_server_metadata()["token_endpoint"], refresh_token=tokens()["refresh_token"])
    kept[session["id"]] = tokens() | dict(new)
    return home()


@app.get("/revoke")
def revoke() -> Response:
    """Revokes the refresh token."""
    with provider._get_oauth_client() as client:
        endpoint = provider.load_server_metadata()["revocation_endpoint"]
        done = client.revoke_token(endpoint, token=tokens()["refresh_token"], token_type_hint="refresh_token")
    return page({"status": done.status_code})


@app.get("/logout")
def logout() -> Response:
    """Redirects to the provider's logout, with an ID token hint."""
    hint = tokens().get("id_token")
    return provider.logout_redirect(post_logout_redirect_uri=f"{APP}/bye", id_token_hint=hint)


@app.get("/bye")
def bye() -> Response:
    """The return from the provider's logout."""
    return page({"bye": provider.validate_logout_response()})


@app.post("/logged-out")
def logged_out() -> Response:
    """OpenID Connect Back-Channel Logout 1.0, section 2.6."""
    try:
        claims = logout_claims(request.form["logout_token"])
    except (JoseError, ValueError) as problem:
        heard.append({"fault": f"{type(problem).__name__}: {problem}"})
        return Response(status=400)
    over = [name for name, held in kept.items() if held["userinfo"]["sid"] == claims["sid"]]
    for name in over:
        del kept[name]
    heard.append({"claims": claims, "ended": len(over)})
    return Response(status=200, headers={"cache-control": "no-store"})


def logout_claims(text: str) -> dict:
    """The claims of a logout token. Raises if it is invalid."""
    metadata = provider.load_server_metadata()
    keys = KeySet.import_key_set(provider.fetch_jwk_set(force=True))
    token = jwt.decode(text, keys, algorithms=metadata["id_token_signing_alg_values_supported"])
    one = {"essential": True}
    registry = jwt.JWTClaimsRegistry(
        now=int(time.time()), iss=one | {"value": ISSUER}, aud=one | {"value": "shop"}, iat=one, exp=one, jti=one,
        sid=one, sub=one,
    )  # fmt: skip
    registry.validate(token.claims)
    if token.header.get("typ") != "logout+jwt":
        raise ValueError(f"typ is {token.header.get('typ')!r}")
    if token.claims.get("events") != {EVENT: {}}:
        raise ValueError(f"events is {token.claims.get('events')!r}")
    if "nonce" in token.claims:
        raise ValueError("it has a nonce, as an ID token does")
    return token.claims


@app.get("/heard")
def told() -> Response:
    """The logout tokens that arrived."""
    return page(heard)


if __name__ == "__main__":
    app.run("localhost", int(os.environ["CLIENTS_APP_PORT"]), threaded=True)
