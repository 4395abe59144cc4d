"""Keys, and tokens signed with them."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path


def openssl(*arguments: str, data: bytes | None = None) -> bytes:
    """Runs openssl. Returns its output."""
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
        """Returns a token with these claims."""
        signed = f"{self._head}.{_document(claims)}"
        return f"{signed}.{_encode(openssl('dgst', '-sha256', '-sign', str(self.private), data=signed.encode()))}"


def ec_key(folder: Path, name: str) -> tuple[Path, dict]:
    """A P-256 key: the file of the private half (PKCS #8), and the public half as a JWK."""
    private = folder / f"{name}.pem"
    private.touch(mode=0o600)
    private.write_bytes(openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"))
    # The encoding ends with both coordinates.
    point = openssl("pkey", "-in", str(private), "-pubout", "-outform", "DER")[-64:]
    coordinates = {"x": _encode(point[:32]), "y": _encode(point[32:])}
    return private, {"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", **coordinates}


def forged(token: str) -> str:
    """The same token with another signature."""
    body, _, signature = token.rpartition(".")
    return f"{body}.{signature[:-8]}{'A' * 6}{signature[-2:]}"
