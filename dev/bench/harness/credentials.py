"""One RSA key, one token and one certificate, so that every subject verifies the same."""

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


def _openssl(*arguments: str, data: bytes | None = None) -> bytes:
    done = subprocess.run(["openssl", *arguments], input=data, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _document(data: dict) -> str:
    return _encode(json.dumps(data, separators=(",", ":")).encode())


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


def _sign(private: Path, now: int) -> str:
    """A token of TOKEN_BYTES bytes (RFC 7515 compact form); a claim is padded to reach the size."""
    head = _document({"alg": "RS256", "kid": KEY_ID, "typ": "JWT"})
    signature_bytes = 342
    room = TOKEN_BYTES - len(head) - signature_bytes - 2
    padding = max(0, room * 3 // 4 - len(json.dumps(_claims(now, 0), separators=(",", ":"))))
    signed = f"{head}.{_document(_claims(now, padding))}"
    signature = _openssl("dgst", "-sha256", "-sign", str(private), data=signed.encode())
    return f"{signed}.{_encode(signature)}"


def make(folder: Path) -> Credentials:
    """Makes key, token, key set and certificate in `folder`."""
    private, public = folder / "token-key.pem", folder / "token-public.pem"
    _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(private))
    _openssl("rsa", "-in", str(private), "-pubout", "-out", str(public))
    modulus = _openssl("rsa", "-pubin", "-in", str(public), "-modulus", "-noout").decode().strip().split("=")[1]
    key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, "e": "AQAB", "n": _encode(bytes.fromhex(modulus))}
    jwks = folder / "jwks.json"
    jwks.write_text(json.dumps({"keys": [key]}))

    certificate, tls_key, combined = folder / "tls.pem", folder / "tls-key.pem", folder / "tls-both.pem"
    _openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout", str(tls_key), "-out", str(certificate),
    )  # fmt: skip
    combined.write_text(certificate.read_text() + tls_key.read_text())

    token = _sign(private, int(time.time()))
    # The same token with another signature: what an authenticating subject must refuse.
    body, _, signature = token.rpartition(".")
    forged = f"{body}.{signature[:-8]}{'A' * 6}{signature[-2:]}"
    return Credentials(public, jwks, certificate, tls_key, combined, token, forged)
