#!/usr/bin/env python3
"""Stand-in for Grafana with `[auth.proxy]`.

  grafana.py PORT

It does with headers what Grafana does with these settings:

  [auth.proxy]
  enabled = true
  header_name = X-WEBAUTH-USER
  headers = Email:X-WEBAUTH-EMAIL Role:X-WEBAUTH-ROLE
  whitelist = 127.0.0.1

The user in the header is signed in without a password, and created if there is no such user.
Requests of other addresses are refused, and those without the header are sent to the form for
passwords. /api/user returns the user.
"""

from __future__ import annotations

import html
import json
import sys
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WHITELIST = ("127.0.0.1",)


@dataclass
class User:
    """User of Grafana, as /api/user returns it."""

    id: int
    login: str
    email: str = ""
    role: str = "Viewer"


USERS: dict[str, User] = {}


class Grafana(BaseHTTPRequestHandler):
    """Serves the user's page."""

    protocol_version = "HTTP/1.1"

    def user(self) -> User | None:
        """The user that the proxy named. Its other headers update the user."""
        login = self.headers.get("X-WEBAUTH-USER")
        if not login or self.client_address[0] not in WHITELIST:
            return None
        user = USERS.setdefault(login, User(len(USERS) + 1, login))
        user.email = self.headers.get("X-WEBAUTH-EMAIL", user.email)
        user.role = self.headers.get("X-WEBAUTH-ROLE", user.role)
        return user

    def do_GET(self) -> None:
        """Answers with the user, or leads to the form for passwords."""
        user = self.user()
        if self.path.startswith("/api/"):
            if user is None:
                self.answer(HTTPStatus.UNAUTHORIZED, "application/json", json.dumps({"message": "Unauthorized"}))
            elif self.path == "/api/user":
                self.answer(HTTPStatus.OK, "application/json", json.dumps(asdict(user)))
            else:
                self.answer(HTTPStatus.NOT_FOUND, "application/json", json.dumps({"message": "Not found"}))
        elif self.path == "/login":
            self.answer(HTTPStatus.OK, "text/html; charset=utf-8", "<h1>User name and password</h1>")
        elif user is None:
            self.answer(HTTPStatus.FOUND, "text/plain", "", Location="/login")
        else:
            who = html.escape(f"{user.login} {user.email} ({user.role})")
            self.answer(HTTPStatus.OK, "text/html; charset=utf-8", f"<h1>Dashboards</h1><p>Signed in as {who}</p>")

    def answer(self, status: HTTPStatus, kind: str, text: str, **headers: str) -> None:
        """Sends a whole response."""
        body = text.encode()
        self.send_response(status)
        for name, value in ({"Content-Type": kind, "Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Grafana).serve_forever()
