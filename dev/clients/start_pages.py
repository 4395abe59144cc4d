"""Follows the pages of docs/start word by word: `dev/start-pages`. The format of a page is in `start_page`."""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from . import yaml_schema
from .cluster import Cluster
from .keycloak import Keycloak
from .links import check_links
from .start_page import (
    PageFault, Promise, Step, indented, items, keeps, plain, read, steps, troubles, unknown,
)  # fmt: skip
from .process import Server, end_in_order, tree
from .report import Fault, Report, Skip
from .stage import CACHE, ROOT, Stage, program
from .form_browser import FormBrowser

# --- What the pages say, and what the script uses ---------------------------------------------------------------------

# Ports of 127.0.0.1 and localhost: each becomes a free one with as many digits, so that tables keep their width.
PORTS = {
    "8080": "where callers come: Postern, or Envoy before it",
    "8081": "Keycloak",
    "8082": "where callers come: nginx",
    "9000": "Postern's own provider",
    "9002": "where Envoy asks Postern",
    "9003": "the application",
    "9004": "where nginx asks Postern",
    "9901": "Postern's admin listener",
    "6443": "the Kubernetes API server",
}
# Programs: what the page's word runs.
PROGRAMS = {
    "postern": "the program that POSTERN names",
    "kcadm.sh": "of the Keycloak that dev/setup keycloak fetched",
    "envoy": "of dev/setup fronts",
    "nginx": "of the distribution; run by root, it gets `user root`, for its workers own nothing here",
    "helm": "of dev/setup helm",
    "kubectl": "the one on the PATH, else dev/clients/kubectl.py, for the API server of dev/setup kubernetes",
}
# Other words: in files, commands and promises.
WORDS = {
    "https://kubernetes.default.svc.cluster.local": ("https://cluster.test", "the issuer of the test's API server"),
}
# What the reader has before the first step. `pods` is a cluster that runs them: dev/gateway-api-conformance.
HAS = {
    "kubernetes-gateway": ("pods",),
    "login": ("keycloak",),
    "api": ("keycloak",),
    "sidecar": ("kubernetes",),
    "proxy": (),
    "provider": (),
}
# As the pages name it.
KEYCLOAK_PASSWORD = "admin"
# Files that no server here reads. They are checked against our own schema, which has the fields that the page uses.
SCHEMAS = {"mesh-config.yaml": "MeshConfig", "authorization-policy.yaml": "AuthorizationPolicy"}
SCHEMA = Path(__file__).parent / "istio.schema.json"
# A file that the API server checks (dry run): the specification of a pod.
POD = "pod-spec.yaml"
# Messages of others that the pages quote; those of Postern must stand in its sources.
FOREIGN = (
    "Invalid parameter: redirect_uri",
    "Client not found.",
    "command not found",
    "RBAC: access denied",
)

# ----------------------------------------------------------------------------------------------------------------------

PAGES = ROOT / "docs/start"
# Keycloak takes its time to start, so its pages come last.
ORDER = ("provider", "proxy", "sidecar", "kubernetes-gateway", "login", "api")
# Pages that are followed in a cluster with pods: the script, and the image that its pods run.
# Guides that go on where a page ended are followed after it.
THEN = {"kubernetes-gateway": ("gateway-api-policies",)}
IN_CLUSTER, IMAGE = ROOT / "dev/gateway-api/follow-pages", "registry.example/postern"
COMMAND_S = 180
SERVER_S = 60
SKIPPED = 77


class PageStage(Stage):
    """A stage whose ports have four digits, as those of the pages."""

    def port(self, name: str) -> int:
        """The port of that name; a free one, which no page names, when it is new."""
        while name not in self.ports:
            port = random.randrange(2000, 8000)
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            if port not in self.ports.values() and str(port) not in PORTS:
                self.ports[name] = port
        return self.ports[name]


def page_file(page: str) -> Path:
    """A page of docs/start, or of docs/guides."""
    start = PAGES / f"{page}.md"
    return start if start.exists() else ROOT / f"docs/guides/{page}.md"


class Words:
    """What a page says, as this run uses it."""

    def __init__(self, stage: Stage, page: str) -> None:
        said = page_file(page).read_text()
        # Keycloak and the API server stay where they are over all pages.
        kept = {"8081": "keycloak", "6443": "apiserver"}
        there = [port for port in PORTS if re.search(rf"(?<!\d){port}(?!\d)", said)]
        self.ports = {port: stage.port(kept[port] if port in kept else f"{page}-{port}") for port in there}
        self.words = {word: ours for word, (ours, _) in WORDS.items() if word in said}

    def of(self, text: str) -> str:
        """The text with this run's ports and words."""
        for word, ours in self.words.items():
            text = text.replace(word, ours)
        if self.ports:
            ports = "|".join(self.ports)
            text = re.sub(rf"(?<!\d)({ports})(?!\d)", lambda found: str(self.ports[found[1]]), text)
        return text

    def show(self) -> None:
        """The table."""
        for port, ours in self.ports.items():
            print(f"      {port} → {ours}  {PORTS[port]}")
        for word, ours in self.words.items():
            print(f"      {word} → {ours}  {WORDS[word][1]}", flush=True)


class Shell:
    """The reader's terminal: one bash for all commands of a page, so that variables stay."""

    def __init__(self, folder: Path, scratch: Path, environment: dict[str, str]) -> None:
        self._scratch, self._count = scratch, 0
        self._process = subprocess.Popen(
            ["bash", "-euo", "pipefail"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd=folder, env=environment, start_new_session=True,
        )  # fmt: skip

    def run(self, commands: str, *, may_fail: bool) -> tuple[int, str]:
        """Exit code, and what was printed."""
        self._count += 1
        script, output = (self._scratch / f"{self._count}.{kind}" for kind in ("sh", "out"))
        script.write_text(commands)
        call = f"source {script} </dev/null >{output} 2>&1"
        if may_fail:
            # In the shell itself a failure would end it; in a condition bash would go on after one.
            call = f"set +e; (set -e; source {script}) </dev/null >{output} 2>&1; code=$?; set -e; (exit $code) || true"
        said = self._ask(f"{call}\nprintf 'done %s\\n' \"${{code:-0}}\"\nunset code\n")
        code = int(said.split()[1]) if said.startswith("done") else self._process.wait()
        return code, output.read_text(errors="replace") if output.exists() else ""

    def _ask(self, text: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return ""
        ready, _, _ = select.select([self._process.stdout], [], [], COMMAND_S)
        if not ready:
            raise Fault(f"the commands did not end within {COMMAND_S} s")
        return self._process.stdout.readline().decode()

    def close(self) -> None:
        """Ends it, and what it runs."""
        for pid in reversed(tree(self._process.pid)):
            try:
                os.kill(pid, 15)
            except ProcessLookupError:
                pass
        self._process.wait()


class Reader:
    """Follows one page."""

    def __init__(self, page: str, stage: Stage, environment: dict[str, str], cluster: Cluster | None) -> None:
        self.page, self.stage, self.cluster = page, stage, cluster
        self.name, self.nodes = read(page_file(page))
        self.words = Words(stage, page)
        self.folder, scratch = stage.folder / page, stage.folder / f"{page}.script"
        for folder in (self.folder, scratch):
            folder.mkdir()
        self.environment = environment | {"HOME": str(scratch)}
        self.shell = Shell(self.folder, scratch, self.environment)
        self.terminals: list[Server] = []
        self.visitor = FormBrowser()
        self.printed = ""

    def follow(self) -> int:
        """Does all steps. Returns how many there were."""
        todo = steps(self.name, self.nodes)
        act: dict[str, Callable[[Step], None]] = {
            "file": self.write, "run": self.run, "serve": self.serve, "browse": self.browse,
        }  # fmt: skip
        self.words.show()
        for step in todo:
            act[step.kind](step)
            self.alive()
        return len(todo)

    def alive(self) -> None:
        """Raises PageFault if a program in a terminal has ended."""
        for terminal in self.terminals:
            if not terminal.alive():
                log = terminal.log.read_text(errors="replace")
                line = terminal.name.rpartition("-")[2]
                text = indented(plain(log)[-3000:])
                raise PageFault(f"{self.name}:{line}: it ended by itself, and printed:\n{text}")

    def write(self, step: Step) -> None:
        """A file of the page."""
        path = self.folder / step.node.title
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise PageFault(f"{self.name}:{step.node.line}: {step.node.title} is outside of the reader's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.words.of(step.node.text))
        try:
            if definition := SCHEMAS.get(step.node.title):
                yaml_schema.hold(yaml_schema.yaml(step.node.text), json.loads(SCHEMA.read_text())["$defs"][definition])
            if step.node.title == POD and self.cluster is not None:
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "application"}}
                pods = "/api/v1/namespaces/default/pods?dryRun=All&fieldValidation=Strict"
                self.cluster.expect("POST", pods, pod | {"spec": yaml_schema.yaml(step.node.text)})
        except (yaml_schema.Unreadable, Fault) as problem:
            raise PageFault(f"{self.name}:{step.node.line}: {step.node.title}: {problem}") from problem

    def run(self, step: Step) -> None:
        """Commands that end."""
        assert step.promise is not None
        commands = self.words.of(step.node.text)
        code, seen = self.shell.run(commands, may_fail=step.promise.code != 0)
        self.printed = plain(seen)
        wanted = self._differs(step.promise, seen, whole=True)
        if code != step.promise.code:
            wanted = f"exit code {step.promise.code}" + (f", and\n{wanted}" if wanted else "")
            seen = f"exit code {code}, and\n{plain(seen)}"
        if wanted is not None:
            raise PageFault(self._difference(step, step.promise, wanted, seen))

    def serve(self, step: Step) -> None:
        """A command that keeps running."""
        commands = self.words.of(step.node.text)
        if os.geteuid() == 0:
            commands = re.sub(r"^nginx ", "nginx -g 'user root;' ", commands, flags=re.M)
        name = f"{self.page}-{step.node.line}"
        command = ["env", "-C", str(self.folder), "bash", "-euo", "pipefail", "-c", commands]
        terminal = self.stage.server(name, command, 0, self.environment)
        # Not among those of the stage that are stopped at its end, and reported: they end with the page.
        self.stage.servers.remove(terminal)
        self.terminals.append(terminal.spawn())
        deadline = time.monotonic() + SERVER_S
        while True:
            log = terminal.log.read_text(errors="replace")
            wanted = self._differs(step.promise, log, whole=False) if step.promise else None
            if wanted is None and (step.promise or listens(terminal.pid)):
                return
            self.alive()
            if time.monotonic() > deadline:
                if step.promise is None or wanted is None:
                    text = indented(commands)
                    raise PageFault(f"{self.name}:{step.node.line}: does not listen after {SERVER_S} s:\n{text}")
                raise PageFault(self._difference(step, step.promise, wanted, log))
            time.sleep(0.1)

    def _differs(self, promise: Promise, seen: str, *, whole: bool) -> str | None:
        output = None if promise.output is None else self.words.of(promise.output)
        return keeps(Promise(promise.line, output, promise.statuses, promise.code), seen, whole=whole)

    def _difference(self, step: Step, promise: Promise, wanted: str, seen: str) -> str:
        return (
            f"{self.name}:{promise.line}: not as the page promises\n  commands of line {step.node.line}:\n"
            f"{indented(self.words.of(step.node.text))}\n  the page promises:\n{indented(wanted)}\n"
            f"  this is what was seen:\n{indented(plain(seen)[-6000:])}"
        )

    def browse(self, step: Step) -> None:
        """A list of steps in a browser."""
        for line, text in items(step.node):
            try:
                self._browse(text)
            except (Fault, OSError) as problem:
                raise PageFault(f"{self.name}:{line}: not as the page promises\n    {text}\n  {problem}") from problem

    def _browse(self, text: str) -> None:
        """One item: verbs, and what follows them."""
        verb, value = "", ""
        token = re.compile(
            r"\b(Open the address|Open|Type|type|Press|press|You see|in a private window)\b"
            r"|<(https?://[^>]+)>|\*\*([^*]+)\*\*|`([^`]+)`"
        )
        if "in a private window" in text:
            self.visitor = FormBrowser()
        for word, url, bold, code in token.findall(text):
            if verb == "open the address" and code:
                # What the last command printed under that name.
                found = re.search(rf'"{re.escape(code)}": *"(https?://[^"]+)"', self.printed)
                if not found:
                    raise Fault(f"the last command printed no address {code!r}: {self.printed[-400:]}")
                self.visitor.open(found[1])
                verb = ""
            elif word and word != "in a private window":
                verb = word.lower()
            elif url and verb == "open":
                self.visitor.open(self.words.of(url))
            elif code and verb == "type":
                value = code
            elif bold and verb == "type":
                self.visitor.type(value, bold)
            elif bold and verb == "press":
                self.visitor.press(bold)
            elif verb == "you see":
                self.visitor.sees(self.words.of(bold or code))

    def close(self) -> None:
        """Ends everything of the page."""
        self.shell.close()
        for terminal in reversed(self.terminals):
            terminal.stop()


def listens(pid: int) -> bool:
    """Whether a process, or one that it started, listens on a TCP port."""
    sockets = set()
    for one in tree(pid):
        try:
            targets = [str(fd.readlink()) for fd in Path(f"/proc/{one}/fd").iterdir()]
        except OSError:
            continue
        sockets |= {target[8:-1] for target in targets if target.startswith("socket:[")}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                return True
    return False


class World:
    """What readers have before they begin: programs, a Keycloak, an API server."""

    def __init__(self, stage: Stage, pages: list[str]) -> None:
        self.stage = stage
        self._keycloak: Keycloak | Skip | None = None
        self.cluster: Cluster | None = None
        programs = stage.folder / "programs"
        programs.mkdir()
        (programs / "postern").symlink_to(stage.postern)
        if shutil.which("kubectl") is None:
            stand_in = programs / "kubectl"
            stand_in.write_text(f'#!/bin/sh\nexec "{sys.executable}" -B "{ROOT}/dev/clients/kubectl.py" "$@"\n')
            stand_in.chmod(0o755)
        path = [programs, CACHE / "bin", CACHE / "keycloak/bin", os.environ.get("PATH", os.defpath), "/usr/sbin"]
        local = "127.0.0.1,localhost"
        self.environment = {
            name: value for name, value in os.environ.items() if name in ("LANG", "TMPDIR", "JAVA_HOME", "USER")
        } | {
            "PATH": os.pathsep.join(map(str, path)), "NO_PROXY": local, "no_proxy": local, "LC_ALL": "C.UTF-8",
            "JAVA_OPTS_KC_HEAP": "-Xms64m -Xmx256m",
        }  # fmt: skip
        if any("keycloak" in HAS[page] for page in pages):
            self._spawn_keycloak()

    def _spawn_keycloak(self) -> None:
        try:
            for name in ("java", "openssl"):
                program(name)
            keycloak = Keycloak(self.stage)
            keycloak.password = KEYCLOAK_PASSWORD
            keycloak.spawn(self.stage)
            self._keycloak = keycloak
        except Skip as missing:
            self._keycloak = missing

    def prepare(self, page: str) -> None:
        """Starts what the page says that the reader has, and looks for the programs that it runs; or Skip."""
        text = (PAGES / f"{page}.md").read_text()
        for name in PROGRAMS:
            if re.search(rf"^ *(?:\w+=\$\()?{re.escape(name)} ", text, re.M) and not self.has(name):
                raise Skip(f"{name} is not there: {PROGRAMS[name]}")
        if "keycloak" in HAS[page]:
            if isinstance(self._keycloak, Skip):
                raise self._keycloak
            assert self._keycloak is not None
            self._keycloak.await_ready()
        if "pods" in HAS[page]:
            missing = [name for name in ("bin/helm", "gateway-api/echo-basic") if not (CACHE / name).exists()]
            if missing or os.geteuid() != 0:
                raise Skip(f"needs root and dev/setup helm gateway-api; missing: {missing}")
        if "kubernetes" in HAS[page] and self.cluster is None:
            self.cluster = Cluster(self.stage)
            self.cluster.start()
            self._configure(self.cluster)

    def has(self, name: str) -> bool:
        """Whether a program is there."""
        return shutil.which(name, path=self.environment["PATH"]) is not None

    def _configure(self, cluster: Cluster) -> None:
        """What `kubectl` reads: the reader is an administrator of the cluster."""
        ca = base64.b64encode(cluster.ca.read_bytes()).decode()
        token = (cluster.folder / "tokens.csv").read_text().split(",")[0]
        configuration = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": cluster.base, "certificate-authority-data": ca}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }  # fmt: skip
        file = self.stage.folder / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(json.dumps(configuration))
        self.environment["KUBECONFIG"] = str(file)


def quoted(page: str, known: Callable[[str], bool]) -> None:
    """What a page quotes of programs stands in their sources."""
    name, all_nodes = read(page_file(page))
    missing = [
        f"{name}:{line}: nothing prints {part!r}"
        for line, message in troubles(all_nodes)
        for part in unknown(message, known)
    ]
    if not troubles(all_nodes):
        missing.append(f"{name}: there is no table of what may go wrong")
    if missing:
        raise PageFault("\n".join(missing))


def sources() -> Callable[[str], bool]:
    """Whether a text stands in the sources, or is one of others."""
    texts = []
    for kind in ("rs", "html", "toml"):
        texts += [path.read_text(errors="replace") for path in (ROOT / "crates").rglob(f"*.{kind}")]
    # Rust's texts go on in the next line.
    text = re.sub(r"\\\n\s*", "", "\n".join(texts)).replace('\\"', '"')
    text = " ".join([*text.split(), *FOREIGN])
    return lambda part: " ".join(part.split()) in text


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="dev/start-pages", add_help=False)
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--no-skips", action="store_true")
    options = parser.parse_args()
    there = {path.stem for path in PAGES.glob("*.md")}
    if there != set(HAS):
        parser.error(f"docs/start has {sorted(there)}, and HAS here names {sorted(HAS)}")
    options.pages = options.pages or ["links", *ORDER]
    for page in options.pages:
        if page not in HAS and page != "links":
            parser.error(f"unknown page {page}: there are {', '.join(['links', *ORDER])}")
    return options


def perform(options: argparse.Namespace, stage: Stage, report: Report) -> None:
    """All pages."""
    if "links" in options.pages:
        with checked(report, "links: every link of the documents leads somewhere, and the book has every page"):
            check_links(ROOT)
    pages = [page for page in ORDER if page in options.pages]
    if not pages:
        return
    known = sources()
    world = World(stage, pages)
    for page in pages:
        with checked(report, f"{page}: what it quotes is what programs print"):
            quoted(page, known)
    for page in pages:
        try:
            world.prepare(page)
        except Skip as missing:
            report.note("skip", page, str(missing))
            continue
        except Exception as problem:  # noqa: BLE001 - whatever it is, the other pages come next
            report.note("FAIL", page, f"what the reader has does not start: {problem}")
            continue
        if "pods" in HAS[page]:
            with checked(report, f"{page}: followed word by word, in a cluster with pods"):
                in_cluster(page, stage)
            continue
        with checked(report, f"{page}: followed word by word"):
            reader = Reader(page, stage, world.environment, world.cluster)
            try:
                reader.follow()
            finally:
                reader.close()


def in_cluster(page: str, stage: Stage) -> None:
    """Follows a page, and the guides that go on there, where pods run, in another process: that one has namespaces of its own."""
    command = [
        str(ROOT / "dev/gateway-api-conformance"), "--no-setup", "--cluster-only",
        "--image", f"{IMAGE}={stage.postern}", "--", str(IN_CLUSTER), page, *THEN.get(page, ()),
    ]  # fmt: skip
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise PageFault(f"{IN_CLUSTER.name} {page} ended with {done.returncode}; it says above what is not as promised")


class checked:
    """A check whose fault is told in several lines."""

    def __init__(self, report: Report, name: str) -> None:
        self.report, self.name, self.began = report, name, time.monotonic()

    def __enter__(self) -> None:
        print(f"follow  {self.name}", flush=True)

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> bool:
        took = time.monotonic() - self.began
        if problem is None:
            self.report.note("pass", self.name, took=took)
        elif isinstance(problem, Exception):
            self.report.note("FAIL", self.name, took=took)
            kind = "" if isinstance(problem, (PageFault, Fault)) else f"{type(problem).__name__}: "
            print(f"{kind}{problem}\n", flush=True)
        return problem is None or isinstance(problem, Exception)


def main() -> int:
    """The exit code."""
    options = arguments()
    end_in_order()
    postern = Path(os.environ["POSTERN"]).resolve()
    if not postern.exists():
        print(f"{postern} is not there: build it (cargo build -p postern), or name it by POSTERN", file=sys.stderr)
        return 1
    report = Report(() if options.no_skips else None)
    folder = Path(tempfile.mkdtemp(prefix="postern-pages-"))
    stage = None
    try:
        stage = PageStage(folder, Path(shutil.copy2(postern, folder / "postern")))
        perform(options, stage, report)
    finally:
        for ended in stage.stop() if stage else []:
            report.note("FAIL", "servers run until they are stopped", ended)
        if report.failed or options.keep:
            print(f"\nfolders of the pages, and logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
        print(report.summary())
    if report.failed:
        return 1
    return 0 if report.passed else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
