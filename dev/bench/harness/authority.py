"""Who gives the tokens of dev/bench-paths, and is asked about the opaque ones.

It is Postern's own provider, with a client for each kind of token.
"""

from __future__ import annotations

import base64
import http.client
import json
import secrets
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from .process import Server, Unready
from .topology import Listening, Place, Process, start_process

# A client of the template is called as the kind of its tokens.
KINDS = {"jwt": "JWT", "opaque": "opaque token (RFC 7662)"}


@dataclass
class Authority:
    """The provider, up."""

    server: Server
    secret: str

    def mint(self, kind: str, count: int) -> list[str]:
        """New tokens of that kind, one grant each."""
        basic = base64.b64encode(f"{kind}:{self.secret}".encode()).decode()
        head = {"authorization": f"Basic {basic}", "content-type": "application/x-www-form-urlencoded"}
        form = urllib.parse.urlencode({"grant_type": "client_credentials"})
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        tokens = []
        try:
            for _ in range(count):
                connection.request("POST", "/token", form, head)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200:
                    said = body[:200].decode(errors="replace")
                    raise Unready(f"the authority answers {answer.status} to a grant of {kind}: {said}")
                tokens.append(json.loads(body)["access_token"])
        except (OSError, http.client.HTTPException) as problem:
            raise Unready(f"the authority grants no {kind}: {problem}; {self.server.last_words()}") from problem
        finally:
            connection.close()
        if len(set(tokens)) != count:
            raise Unready(f"the authority gave the same {kind} twice: tokens that are to be new are not")
        return tokens


def start(place: Place) -> Authority:
    """Starts it, and tells the templates of `place` where it is."""
    secret = secrets.token_urlsafe(32)
    file = Path(place.folder) / "client.secret"
    file.touch(mode=0o600)
    file.write_text(secret + "\n")
    listening = Listening()
    place.values |= {"AUTHORITY_PORT": str(listening.plain), "SECRET_FILE": str(file)}
    process = Process("authority", "postern", "authority.toml")
    return Authority(start_process(process, place, listening, {}, "authority"), secret)


def bad(token: str) -> str:
    """The same token with its end changed: a JWT with another signature, an opaque one that was never given."""
    tail = token[-12:-2]
    return token[:-12] + "".join("B" if letter == "A" else "A" for letter in tail) + token[-2:]
