"""Credentials of callers: tokens of a test issuer, and certificates of a test authority."""

from __future__ import annotations

import time
from pathlib import Path

from .keys import Signer, forged, openssl

__all__ = ["AUDIENCE", "ISSUER", "Authority", "Issuer", "forged"]

ISSUER = "https://issuer.clients.test"
AUDIENCE = "clients"
KEY_ID = "clients-2048"
LIFETIME_S = 3600


class Issuer:
    """An RSA key, and the tokens signed with it."""

    def __init__(self, folder: Path) -> None:
        self._signer = Signer(folder, KEY_ID)
        self.jwks = self._signer.jwks

    def token(self, user: str, **claims: object) -> str:
        """Returns a token for a user, with additional or different claims."""
        now = int(time.time())
        return self._signer.token({
            "iss": ISSUER, "aud": AUDIENCE, "sub": f"id-of-{user}", "preferred_username": user,
            "iat": now, "exp": now + LIFETIME_S, "scope": "openid read", **claims,
        })  # fmt: skip


class Authority:
    """A certificate authority for the tests."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}-key.pem"
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "60",
            "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-keyout", str(self._key), "-out", str(self.certificate),
        )  # fmt: skip

    def issue(self, name: str, subject: str, usage: str, alternative: str, days: int = 60) -> tuple[Path, Path]:
        """Creates a certificate and its key. `usage` is serverAuth or clientAuth. Negative days:
        expired."""
        base = self._folder / f"{self._name}-{name}"
        certificate, key, request, extensions = (base.with_suffix(s) for s in (".pem", ".key", ".csr", ".ext"))
        openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", subject, "-keyout", str(key), "-out", str(request),
        )  # fmt: skip
        extensions.write_text(
            "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
            f"extendedKeyUsage={usage}\nsubjectAltName={alternative}\n"
        )
        openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key),
            "-CAcreateserial", "-days", str(days), "-extfile", str(extensions), "-out", str(certificate),
        )  # fmt: skip
        return certificate, key

    def revocation_list(self, *revoked: Path, seconds: int = 86400) -> Path:
        """Writes a list of revoked certificates that is valid for some seconds."""
        base = self._folder / f"{self._name}-list"
        settings, index, number, result = (base.with_suffix(s) for s in (".cnf", ".index", ".number", ".crl"))
        settings.write_text(
            f"[ca]\ndefault_ca = list\n[list]\ndatabase = {index}\ncrlnumber = {number}\ndefault_md = sha256\n"
        )
        index.write_text("")
        number.write_text(f"{int(time.time() * 1000):016X}\n")
        authority = ("ca", "-config", str(settings), "-keyfile", str(self._key), "-cert", str(self.certificate))
        for certificate in revoked:
            openssl(*authority, "-revoke", str(certificate))
        openssl(*authority, "-gencrl", "-crlsec", str(seconds), "-out", str(result))
        return result
