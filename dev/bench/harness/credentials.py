"""One RSA key, one token and one certificate, so that every subject verifies the same; keys and tokens for other tests."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

ISSUER = "https://issuer.bench.test"
AUDIENCE = "bench"
KEY_ID = "bench-2048"
TOKEN_BYTES = 900
LIFETIME_S = 24 * 3600


@dataclass
class Credentials:
    """Files of the run, and the tokens made from them."""

    public_pem: Path
    jwks: Path
    certificate: Path
    key: Path
    combined: Path
    token: str
    forged: str


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


class Signer:
    """An RSA key, its key set, and tokens (RFC 7515 compact form) signed with it."""

    # The base64 of 256 bytes.
    SIGNATURE_CHARACTERS = 342

    def __init__(self, folder: Path, key_id: str) -> None:
        self.private, self.public, self.jwks = folder / "token-key.pem", folder / "token-public.pem", folder / "jwks.json"
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(self.private))
        openssl("rsa", "-in", str(self.private), "-pubout", "-out", str(self.public))
        shown = openssl("rsa", "-pubin", "-in", str(self.public), "-modulus", "-noout").decode()
        modulus = _encode(bytes.fromhex(shown.strip().split("=")[1]))
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": key_id, "e": "AQAB", "n": modulus}
        self.jwks.write_text(json.dumps({"keys": [key]}))
        self._head = _document({"alg": "RS256", "kid": key_id, "typ": "JWT"})

    def token(self, claims: dict) -> str:
        """A token with these claims."""
        signed = f"{self._head}.{_document(claims)}"
        return f"{signed}.{_encode(openssl('dgst', '-sha256', '-sign', str(self.private), data=signed.encode()))}"

    def room(self, token_bytes: int) -> int:
        """How many bytes the claims of a token of that size have, encoded."""
        return token_bytes - len(self._head) - self.SIGNATURE_CHARACTERS - 2


def forged(token: str) -> str:
    """The same token with another signature."""
    body, _, signature = token.rpartition(".")
    return f"{body}.{signature[:-8]}{'A' * 6}{signature[-2:]}"


def _claims(now: int, padding: int) -> dict:
    return {
        "iss": ISSUER,
        "aud": [AUDIENCE],
        "sub": "5f0c9a1e-6a55-4b5e-9c3a-2d8f3f6f7a10",
        "client_id": "bench-client",
        "iat": now,
        "exp": now + LIFETIME_S,
        "jti": "bench-0001",
        "scope": "openid profile read",
        "preferred_username": "bench",
        "email": "bench@example.test",
        "groups": ["developers", "operators"],
        "sid": "x" * padding,
    }


def make(folder: Path) -> Credentials:
    """Makes key, token, key set and certificate in `folder`."""
    signer = Signer(folder, KEY_ID)

    certificate, tls_key, combined = folder / "tls.pem", folder / "tls-key.pem", folder / "tls-both.pem"
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout", str(tls_key), "-out", str(certificate),
    )  # fmt: skip
    combined.write_text(certificate.read_text() + tls_key.read_text())

    now = int(time.time())
    # A claim is padded until the token has its size.
    padding = max(0, signer.room(TOKEN_BYTES) * 3 // 4 - len(json.dumps(_claims(now, 0), separators=(",", ":"))))
    token = signer.token(_claims(now, padding))
    # What an authenticating subject must refuse.
    return Credentials(signer.public, signer.jwks, certificate, tls_key, combined, token, forged(token))
