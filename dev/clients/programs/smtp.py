"""A mail server: aiosmtpd with TLS and a password. It writes each mail into a file of a folder.

    smtp.py PORT implicit|starttls FOLDER CERTIFICATE KEY
"""

from __future__ import annotations

import asyncio
import hmac
import os
import ssl
import sys
from pathlib import Path

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER = b"postern"


class Mailbox:
    """Writes mails into files, in the order of their arrival."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Accepts a mail."""
        self.count += 1
        part = self.folder / f"{self.count:04}.part"
        part.write_bytes(envelope.content)
        part.rename(part.with_suffix(".eml"))
        return f"250 2.0.0 queued as {self.count}"


def authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object) -> AuthResult:
    """Whether these are the user and the password."""
    password = os.environ["SMTP_PASSWORD"].encode()
    right = isinstance(data, LoginPassword) and data.login == USER and hmac.compare_digest(data.password, password)
    # Not handled: the server itself then answers that the password is wrong.
    return AuthResult(success=right, handled=right)


async def main() -> None:
    """Serves until the process is stopped."""
    port, tls, folder, certificate, key = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    mailbox = Mailbox(Path(folder))

    def factory() -> SMTP:
        starttls = {"tls_context": context, "require_starttls": True} if tls == "starttls" else {}
        return SMTP(
            mailbox, hostname="localhost", authenticator=authenticate, auth_required=True,
            auth_require_tls=tls == "starttls", loop=asyncio.get_running_loop(), **starttls,
        )  # fmt: skip

    implicit = context if tls == "implicit" else None
    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", int(port), ssl=implicit)
    async with server:
        await server.serve_forever()


asyncio.run(main())
