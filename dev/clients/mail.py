"""Mails of the provider at a foreign mail server, aiosmtpd: invitations and reset links, over TLS with a
password, as Python's own parser reads them."""

from __future__ import annotations

import email
import email.policy
import http.cookiejar
import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from email.message import EmailMessage
from pathlib import Path

from .foreign import PROGRAMS
from .report import Report, equal, expect
from .stage import Stage, venv_python

PASSWORD = "plough the winter dunes"
OWN = "seven quiet otters drum"
MAIL_PASSWORD = "the password of the post office"
ARRIVES_S = 20


class Post:
    """The mail server; each mail is a file in a folder."""

    def __init__(self, stage: Stage, tls: str) -> None:
        self.folder = stage.folder / f"mails-{tls}"
        self.folder.mkdir()
        self.port = stage.port(f"smtp-{tls}")
        python = venv_python("aiosmtpd")
        command = [python, str(PROGRAMS / "smtp.py"), str(self.port), tls, str(self.folder)]
        command += [str(stage.certificate), str(stage.key)]
        environment = {"SMTP_PASSWORD": MAIL_PASSWORD, "PYTHONDONTWRITEBYTECODE": "1"}
        self.server = stage.server(f"smtp-{tls}", command, self.port, environment).start()

    def mails(self, count: int) -> list[EmailMessage]:
        """All mails, once there are that many."""
        deadline = time.monotonic() + ARRIVES_S
        while len(files := sorted(self.folder.glob("*.eml"))) < count and time.monotonic() < deadline:
            time.sleep(0.1)
        equal("the number of mails", len(files), count)
        return [email.message_from_bytes(file.read_bytes(), policy=email.policy.default) for file in files]


def run(stage: Stage, report: Report) -> None:
    """Runs the checks once with implicit TLS and once with STARTTLS."""
    for tls in ("implicit", "starttls"):
        report.group(f"mail {tls}", lambda tls=tls: _run(stage, report, tls))


def _run(stage: Stage, report: Report, tls: str) -> None:
    post = Post(stage, tls)
    port, admin = stage.port(f"mail-{tls}"), stage.port(f"mail-admin-{tls}")
    issuer = f"http://127.0.0.1:{port}"
    (stage.folder / "mail.password").write_text(MAIL_PASSWORD + "\n")
    (stage.folder / "mail.password").chmod(0o600)
    configuration = stage.configuration(
        "mail.toml", f"mail-{tls}.toml", ADMIN_PORT=admin, PORT=port, ISSUER=issuer, TLS=tls, SMTP_PORT=post.port,
        CA=stage.authority.certificate, DATABASE=f"sqlite://{stage.folder}/mail-{tls}.db?mode=rwc",
    )  # fmt: skip

    def administer(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(stage.postern), "admin", "--config", str(configuration), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        expect(done.returncode == 0, f"postern admin {' '.join(words)}: {done.stderr.strip()[:300]}")
        return done

    with report.check(f"mail {tls}: the server accepts a test"):
        done = administer("mail", "test", "ops@works.example")
        expect("250" in done.stderr, done.stderr)
        [test] = post.mails(1)
        equal("From", str(test["From"]), "Example Works <login@works.example>")
        equal("Auto-Submitted", test["Auto-Submitted"], "auto-generated")
    claims = stage.folder / "mail-claims.json"
    claims.write_text(json.dumps({"locale": "de"}))
    administer("user", "add", "ada", "--email", "ada@works.example", "--verified", "--claims", str(claims))
    stage.serve(f"mail-{tls}", configuration, port, admin)
    with report.check(f"mail {tls}: an invitation arrives in the user's language and sets the password"):
        done = administer("user", "invite", "ada", "--mail")
        equal("standard output", done.stdout, "")
        invitation = post.mails(2)[1]
        equal("Subject", str(invitation["Subject"]), "Ihr Konto bei Example Works")
        equal("To", str(invitation["To"]), "ada@works.example")
        _set_password(_link(invitation), PASSWORD)
    with report.check(f"mail {tls}: a user who forgot the password gets a link"):
        browser = _browser()
        _submit(browser, f"{issuer}/forgot-password", login="ada@works.example")
        _submit(_browser(), f"{issuer}/forgot-password", login="nobody@works.example")
        reset = post.mails(3)[2]
        expect("password" in str(reset["Subject"]), str(reset["Subject"]))
        equal("Message-ID differs", len({str(mail["Message-ID"]) for mail in post.mails(3)}), 3)
        _set_password(_link(reset), OWN)
        done = administer("--output", "json", "audit", "list", "--user", "ada")
        actions = [entry["action"] for entry in json.loads(done.stdout)["items"]]
        equal("actions", actions[-3:], ["reset.request", "mail.send", "user.password"])


def _browser() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))


def _submit(browser: urllib.request.OpenerDirector, page: str, **fields: str) -> str:
    """Fills in the form of a page and sends it. Returns the page that follows."""
    with browser.open(page, timeout=20) as answer:
        text = answer.read().decode()
    action = re.search(r'<form method="post" action="([^"]+)"', text)[1]
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', text))
    data = urllib.parse.urlencode(hidden | fields).encode()
    with browser.open(urllib.parse.urljoin(page, action), data, timeout=20) as answer:
        return answer.read().decode()


def _link(mail: EmailMessage) -> str:
    text = mail.get_content()
    links = [line for line in text.splitlines() if re.fullmatch(r"https?://\S+/set-password\?token=\S+", line)]
    equal("the number of links alone in a line", len(links), 1)
    return links[0]


def _set_password(link: str, password: str) -> None:
    _submit(_browser(), link, new=password, again=password)
