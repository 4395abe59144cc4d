"""A browser without scripts: cookies, redirects and forms. Standard library only."""

from __future__ import annotations

import http.cookiejar
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from html.parser import HTMLParser

from .report import Fault

TIMEOUT_S = 60


@dataclass
class Form:
    """A form: where and how it is sent, its fields with their values, and its buttons by what they say."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: dict[str, tuple[str, str]] = field(default_factory=dict)


class _Page(HTMLParser):
    """Collects forms, labels and the visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.labels: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.words: list[str] = []
        self._label: str | None = None
        self._button: tuple[str, str] | None = None
        self._said = ""
        self._hidden = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        if tag in ("script", "style"):
            self._hidden += 1
        elif tag == "form":
            self.forms.append(Form(told.get("action", ""), told.get("method", "get").lower()))
        elif tag == "label":
            self._label, self._said = told.get("for", ""), ""
        elif tag == "button":
            self._button, self._said = (told.get("name", ""), told.get("value", "")), ""
        elif tag == "input" and self.forms:
            self._input(told)

    def _input(self, told: dict[str, str]) -> None:
        form, name, kind = self.forms[-1], told.get("name", ""), told.get("type", "text")
        if kind == "submit":
            form.buttons[told.get("value", "")] = (name, told.get("value", ""))
        elif name and kind not in ("checkbox", "radio"):
            form.fields[name] = told.get("value", "")
            self.names[told.get("id", name)] = name

    def handle_endtag(self, tag: str) -> None:
        said = " ".join(self._said.split())
        if tag in ("script", "style"):
            self._hidden -= 1
        elif tag == "label" and self._label is not None:
            self.labels[said] = self._label
            self._label = None
        elif tag == "button" and self._button is not None and self.forms:
            self.forms[-1].buttons[said] = self._button
            self._button = None

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)
            self._said += data


class FormBrowser:
    """One browser window, with no cookies at first."""

    def __init__(self) -> None:
        # Browsers and Keycloak treat loopback like https: Secure cookies are sent there.
        policy = http.cookiejar.DefaultCookiePolicy(secure_protocols=("https", "http"))
        jar = http.cookiejar.CookieJar(policy)
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar)
        self._opener = urllib.request.build_opener(*handlers)
        self.url = ""
        self.text = ""
        self._page = _Page("")
        self._typed: dict[str, str] = {}

    def open(self, url: str, data: bytes | None = None) -> None:
        """Opens an address and follows redirects."""
        headers = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "Accept-Language": "en"}
        request = urllib.request.Request(url, data=data, headers=headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                self._show(answer.url, answer.read(), answer.headers.get_content_type())
        except urllib.error.HTTPError as refused:
            self._show(refused.url, refused.read(), refused.headers.get_content_type())

    def _show(self, url: str, body: bytes, kind: str) -> None:
        text = body.decode(errors="replace")
        self.url, self._typed = url, {}
        self._page = _Page(text if kind == "text/html" else "")
        self.text = " ".join((" ".join(self._page.words) if kind == "text/html" else text).split())

    def type(self, value: str, label: str) -> None:
        """Fills in the field with that label."""
        name = self._page.names.get(self._page.labels.get(label, ""))
        if name is None:
            raise Fault(f"no field is called {label!r}; there are {sorted(self._page.labels)} at {self.url}")
        self._typed[name] = value

    def offers(self, button: str) -> bool:
        """Whether the page has that button."""
        return any(button in form.buttons for form in self._page.forms)

    def press(self, button: str) -> None:
        """Sends the form with that button."""
        for form in self._page.forms:
            if button in form.buttons:
                break
        else:
            there = sorted(name for form in self._page.forms for name in form.buttons)
            raise Fault(f"no button is called {button!r}; there are {there} at {self.url}")
        name, value = form.buttons[button]
        fields = form.fields | self._typed | ({name: value} if name else {})
        url, data = urllib.parse.urljoin(self.url, form.action), urllib.parse.urlencode(fields)
        if form.method == "post":
            self.open(url, data.encode())
        else:
            self.open(f"{re.sub('[?].*', '', url)}?{data}")

    def sees(self, text: str) -> None:
        """Raises Fault unless the page shows the text."""
        wanted = " ".join(text.split())
        if wanted not in self.text:
            raise Fault(f"the page does not show {wanted!r}; it is {self.url} and shows: {self.text[:600]}")
