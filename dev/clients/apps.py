"""Real applications behind the gateway: RabbitMQ's management API and JupyterLab.

Their paths have what servers read in different ways: `%2F` for RabbitMQ's virtual host `/`, and `#`
in the name of a notebook.
"""

from __future__ import annotations

import base64
import http.client
import json
from pathlib import Path

from . import credentials
from .foreign import run_program
from .process import Server, Unready
from .report import Report, Skip, equal, expect
from .reviews import until
from .stage import Stage, program, venv_python, wait_for

READY_S = 90
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
# RabbitMQ's own first user.
GUEST = "Basic " + base64.b64encode(b"guest:guest").decode()
PROGRAM = Path(__file__).resolve().parent / "programs/jupyter_client.py"
QUEUE = "/api/queues/%2F/orders"


def run(stage: Stage, report: Report) -> None:
    """Starts the applications and the gateway, and runs all checks."""
    if not RABBITMQ.exists():
        raise Skip("RabbitMQ is not installed; run dev/setup apps")
    python = venv_python("jupyterlab", "ipykernel", "websocket")
    start_rabbitmq(stage)
    start_jupyter(stage, python)
    configuration = stage.configuration(
        "apps.toml",
        FOLDER=stage.folder, ISSUER=credentials.ISSUER, AUDIENCE=credentials.AUDIENCE, JWKS=stage.issuer.jwks,
        ADMIN_PORT=stage.port("apps-admin"), APPS_PORT=stage.port("apps"),
        RABBITMQ_PORT=stage.port("rabbitmq"), JUPYTER_PORT=stage.port("jupyter"),
    )  # fmt: skip
    stage.serve("apps", configuration, stage.port("apps"), stage.port("apps-admin"))
    rabbitmq(stage, report)
    place = {"JUPYTER": f"127.0.0.1:{stage.port('apps')}", "JUPYTER_HOST": "jupyter.localhost"}
    run_program("jupyter", [python, str(PROGRAM)], stage, report, place)


def start_rabbitmq(stage: Stage) -> None:
    """Starts RabbitMQ with its management API, on loopback only."""
    folder = stage.folder / "rabbitmq"
    folder.mkdir()
    (folder / "plugins").write_text("[rabbitmq_management].\n")
    (folder / "rabbitmq.conf").write_text(
        f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {stage.port('rabbitmq')}\n"
    )
    # Erlang's name server. Otherwise Erlang starts one by itself and leaves it running.
    names = stage.port("rabbitmq-names")
    stage.server("epmd", [program("epmd"), "-address", "127.0.0.1", "-port", str(names)], names).start()
    port = stage.port("rabbitmq-amqp")
    loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
    environment = {
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": f"postern{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(stage.port("rabbitmq-dist")),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": loopback,
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "HOME": str(folder),
    }
    server = stage.server("rabbitmq", [str(RABBITMQ)], stage.port("rabbitmq"), environment)
    server.spawn()
    await_port(server, READY_S)


def start_jupyter(stage: Stage, python: str) -> None:
    """Starts JupyterLab without a token of its own: the gateway authenticates."""
    folder = stage.folder / "jupyter"
    (folder / "notebooks").mkdir(parents=True)
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": stage.port("jupyter"),
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": folder / "notebooks",
        "ServerApp.open_browser": False,
        "ServerApp.allow_root": True,
        # It sees the gateway's host names.
        "ServerApp.allow_remote_access": True,
        "ServerApp.disable_check_xsrf": True,
        "IdentityProvider.token": "",
    }
    command = [python, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]
    environment = {name: str(folder / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR")}
    server = stage.server("jupyter", command, stage.port("jupyter"), environment | {"HOME": str(folder)})
    server.spawn()
    await_port(server, READY_S)
    wait_for(server, f"http://127.0.0.1:{stage.port('jupyter')}/api/status", READY_S)


def await_port(server: Server, seconds: float) -> None:
    """Waits longer than usual for a server that starts slowly."""
    last: Unready | None = None
    for _ in range(int(seconds / 30)):
        try:
            server.await_listening()
        except Unready as late:
            last = late
            server.check_alive()
        else:
            return
    raise last or Unready("no time to wait")


def send(stage: Stage, method: str, target: str, body: object = None, **headers: str) -> tuple[int, bytes]:
    """Sends a request whose target arrives as it is written."""
    connection = http.client.HTTPConnection("127.0.0.1", stage.port("apps"), timeout=20)
    try:
        fields = {"Host": "rabbitmq.localhost", "Content-Type": "application/json", "Authorization": GUEST} | headers
        connection.request(method, target, None if body is None else json.dumps(body), fields)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def rabbitmq(stage: Stage, report: Report) -> None:
    """RabbitMQ's management API, whose virtual host `/` is `%2F` in paths."""
    with report.check("rabbitmq: a queue of the virtual host / is declared and read"):
        equal("the status", send(stage, "PUT", QUEUE, {"durable": True})[0], 201)
        status, body = send(stage, "GET", QUEUE)
        queue = json.loads(body)
        equal("the queue", (status, queue["vhost"], queue["name"]), (200, "/", "orders"))
    with report.check("rabbitmq: a message is published and taken"):
        message = {"properties": {}, "routing_key": "orders", "payload": "1", "payload_encoding": "string"}
        status, body = send(stage, "POST", "/api/exchanges/%2f/amq.default/publish", message)
        equal("the answer", (status, json.loads(body)), (200, {"routed": True}))
        wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
        status, body = send(stage, "POST", f"{QUEUE}/get", wanted)
        equal("the message", (status, [one["payload"] for one in json.loads(body)]), (200, ["1"]))
    with report.check("rabbitmq: a name with a slash of its own"):
        equal("the status", send(stage, "PUT", "/api/queues/%2F/a%2Fb%3Fc%23d", {})[0], 201)
        status, body = send(stage, "GET", "/api/queues/%2F/a%2Fb%3Fc%23d")
        equal("the queue", (status, json.loads(body)["name"]), (200, "a/b?c#d"))
    with report.check("rabbitmq: what leads to a guarded path in some reading is refused"):
        equal("the guarded path", send(stage, "GET", "/api/users/guest")[0], 401)
        for target in ("/api/x%2F..%2Fusers/guest", "/api//users/guest", "/api/./users/guest", "/api/%252E%252E%252Fapi/users"):
            status, body = send(stage, "GET", target)
            expect(status == http.client.BAD_REQUEST, f"{target} is answered {status}: {body[:200]!r}")
    with report.check("rabbitmq: the log has both readings"):
        both = ("/api//users/guest", "/api/users/guest")
        until(lambda: both in refused_readings(stage), 10, lambda: f"there are {refused_readings(stage)}")


def refused_readings(stage: Stage) -> list[tuple[str, str]]:
    """Path and other reading of each request that was refused for them."""
    lines = [json.loads(line) for line in (stage.folder / "apps-access.log").read_text().splitlines()]
    return [(line["path"], line["other_path"]) for line in lines if line.get("reason") == "ambiguous_path"]
