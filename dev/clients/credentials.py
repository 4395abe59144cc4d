"""What callers show: tokens of a small issuer, and certificates of a small authority."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from pathlib import Path

ISSUER = "https://issuer.clients.test"
AUDIENCE = "clients"
KEY_ID = "clients-2048"
LIFETIME_S = 3600


def openssl(*arguments: str, data: bytes | None = None) -> bytes:
    """Runs openssl; its output."""
    done = subprocess.run(["openssl", *arguments], input=data, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _document(data: dict) -> str:
    return _encode(json.dumps(data, separators=(",", ":")).encode())


class Issuer:
    """An RSA key and the tokens signed with it."""

    def __init__(self, folder: Path) -> None:
        self._private = folder / "token-key.pem"
        self.jwks = folder / "jwks.json"
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(self._private))
        shown = openssl("rsa", "-in", str(self._private), "-modulus", "-noout").decode()
        modulus = _encode(bytes.fromhex(shown.strip().split("=")[1]))
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, "e": "AQAB", "n": modulus}
        self.jwks.write_text(json.dumps({"keys": [key]}))

    def token(self, user: str, **claims: object) -> str:
        """A token (RFC 7515 compact form) for a user, with further or other claims."""
        now = int(time.time())
        content = {
            "iss": ISSUER, "aud": AUDIENCE, "sub": f"id-of-{user}", "preferred_username": user,
            "iat": now, "exp": now + LIFETIME_S, "scope": "openid read", **claims,
        }  # fmt: skip
        signed = f"{_document({'alg': 'RS256', 'kid': KEY_ID, 'typ': 'JWT'})}.{_document(content)}"
        return f"{signed}.{_encode(openssl('dgst', '-sha256', '-sign', str(self._private), data=signed.encode()))}"


def forged(token: str) -> str:
    """The same token with another signature."""
    body, _, signature = token.rpartition(".")
    return f"{body}.{signature[:-8]}{'A' * 6}{signature[-2:]}"


class Authority:
    """A certificate authority of its own."""

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
        """A certificate and its key; `usage` is serverAuth or clientAuth. Negative days: expired."""
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
