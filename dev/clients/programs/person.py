"""A user with a browser that supports cookies, redirects and forms, and no scripts.

As a program, `person.py NAME URL` is the browser that a native application opens. It logs in, gives
consent and continues until the last page.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

import requests

ISSUER = os.environ["CLIENTS_ISSUER"]
PASSWORD = os.environ["CLIENTS_PASSWORD"]
# Login, consent, and the form that takes the response to the client: no flow needs more.
MOST_FORMS = 3


@dataclass
class Form:
    """A form: its target, its fields with their values, and its buttons with theirs."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: list[tuple[str | None, str | None]] = field(default_factory=list)


class _Forms(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag == "form":
            self.forms.append(Form(told.get("action") or ""))
        elif self.forms and tag == "input" and told.get("name"):
            self.forms[-1].fields[told["name"] or ""] = told.get("value") or ""
        elif self.forms and tag == "button":
            self.forms[-1].buttons.append((told.get("name"), told.get("value")))


class Person:
    """A user who logs in with that name."""

    def __init__(self, name: str, language: str = "en") -> None:
        self.name = name
        self.session = requests.Session()
        self.session.trust_env = False
        # Servers in clear text need no authority.
        self.session.verify = os.environ.get("CLIENTS_CA", True)
        self.session.headers["accept-language"] = language
        # what was filled in since the last `visit`: field names and decisions
        self.asked: list[str] = []

    def get(self, url: str) -> requests.Response:
        """Opens a page and follows redirects."""
        return self.session.get(url, timeout=20)

    def submit(self, page: requests.Response, **values: str) -> requests.Response:
        """Sends the page's first form."""
        form = _Forms(page.text).forms[0]
        return self.session.post(urljoin(page.url, form.action), data=form.fields | values, timeout=20)

    def visit(self, url: str, decision: str = "allow") -> requests.Response:
        """Opens a page and completes the provider's pages, up to the first page that is not the
        provider's."""
        self.asked = []
        page = self.get(url)
        for _ in range(MOST_FORMS):
            forms = _Forms(page.text).forms if page.url.startswith(ISSUER) else []
            if not page.ok or not forms:
                return page
            if "password" in forms[0].fields:
                self.asked.append("password")
                page = self.submit(page, username=self.name, password=PASSWORD)
            elif any(name == "decision" for name, _ in forms[0].buttons):
                self.asked.append("decision")
                page = self.submit(page, decision=decision)
            else:
                self.asked.append("return")
                page = self.submit(page)
        return page


if __name__ == "__main__":
    last = Person(sys.argv[1]).visit(sys.argv[2])
    sys.exit(0 if last.ok else f"the last page, {last.url}, has status {last.status_code}: {last.text[-500:]}")
