"""An OpenID provider on the cluster's node: a discovery document, keys, and tokens with any claims.

Owns: what a gateway needs of it to verify tokens and to send browsers to log in.
Does not own: logging in; nobody is asked for a password.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from clients.keys import Signer

from .network import NODE


class IdentityProvider:
    """Serves until the process ends."""

    def __init__(self, folder: Path) -> None:
        self.signer = Signer(folder, "gateway-api")
        self._server = ThreadingHTTPServer((NODE, 0), self._handler())
        self.base = f"http://{NODE}:{self._server.server_port}"
        # Two keys of a configuration that a chart indents by two spaces.
        self.configuration = f'issuer = "{self.base}"\n  insecure_http = true'

    def start(self) -> None:
        """Answers from now on."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def token(self, **claims: object) -> str:
        """An access token for an hour."""
        now = int(time.time())
        return self.signer.token({"iss": self.base, "iat": now, "exp": now + 3600, **claims})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                base = provider.base
                documents = {
                    "/.well-known/openid-configuration": {
                        "issuer": base, "jwks_uri": f"{base}/keys", "authorization_endpoint": f"{base}/authorize",
                        "token_endpoint": f"{base}/token", "response_types_supported": ["code"],
                        "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256"],
                        "code_challenge_methods_supported": ["S256"],
                    },
                    "/keys": json.loads(provider.signer.jwks.read_text()),
                }  # fmt: skip
                found = documents.get(self.path)
                body = json.dumps(found or {}).encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
