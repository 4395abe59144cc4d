"""JavaScript at Postern's provider: openid-client."""

from __future__ import annotations


from . import documents
from .foreign import run_program
from .provider import Provider
from .report import Report, Skip
from .stage import CACHE, HERE, Stage, program

MODULES = CACHE / "node"


def script(stage: Stage, name: str) -> list[str]:
    """The command of a program in dev/clients/node. Raises Skip if it cannot run."""
    node = program("node", "dev/setup node")
    if not (MODULES / "version").exists():
        log = ".cache/logs/setup-node.log"
        raise Skip(f"the packages of dev/clients/node are not there; run dev/setup node (its log: {log})")
    folder = stage.folder / "node"
    if not folder.exists():
        # Node.js finds packages from the file that imports them.
        folder.mkdir()
        (folder / "node_modules").symlink_to(MODULES / "node_modules")
        for source in (HERE / "node").glob("*.mjs"):
            (folder / source.name).write_bytes(source.read_bytes())
    return [node, str(folder / name)]


def run(provider: Provider, stage: Stage, report: Report) -> None:
    """Runs all checks."""
    command = script(stage, "openid_client.mjs")
    webshop = documents.replaced(documents.block("js", "openid-client"), {
        documents.ISSUER: provider.issuer, "https://shop.example": f"{provider.environment['CLIENTS_APP']}/webshop",
        # the tests have no TLS
        "process.env.WEBSHOP_SECRET": "process.env.CLIENTS_SECRET, undefined, { execute: [client.allowInsecureRequests] }",
    })  # fmt: skip
    (stage.folder / "node/webshop.mjs").write_text(webshop)
    run_program("openid-client", command, stage, report, provider.environment)
