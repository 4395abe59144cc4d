"""Server-sent events: each arrives when it is sent, not when the stream ends."""

from __future__ import annotations

import ssl
import time

import httpx
from verdicts import BEARER, CA, PLAIN, SECURE, check, equal

COUNT = 6
INTERVAL_S = 0.2


def one_by_one(base: str, http2: bool) -> None:
    """Reads a stream of events and the arrival time of each."""
    verify = ssl.create_default_context(cafile=CA)
    arrivals: list[tuple[str, float]] = []
    with httpx.Client(http2=http2, verify=verify, headers=BEARER, base_url=base, trust_env=False) as session:
        url = f"/live/events?count={COUNT}&interval={round(INTERVAL_S * 1000)}ms"
        with session.stream("GET", url, headers={"accept": "text/event-stream"}) as answer:
            equal("status and version", (answer.status_code, answer.http_version), (200, "HTTP/2" if http2 else "HTTP/1.1"))
            equal("type", answer.headers["content-type"], "text/event-stream")
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    arrivals.append((line, time.monotonic()))
    equal("events", [line for line, _ in arrivals], [f"data: event {n}" for n in range(1, COUNT + 1)])
    times = [when for _, when in arrivals]
    gaps = sorted(later - earlier for earlier, later in zip(times, times[1:], strict=False))
    # Buffered events would arrive together, without gaps. Half an interval leaves room for a busy
    # machine.
    middle = gaps[len(gaps) // 2]
    assert middle > INTERVAL_S / 2, f"events came in bunches: gaps of {[round(gap, 3) for gap in gaps]} s"
    spread = times[-1] - times[0]
    assert spread > (COUNT - 1) * INTERVAL_S / 2, f"the events came within {spread:.3f} s"


check("events arrive one by one over HTTP/1.1", one_by_one, f"http://{PLAIN}", False)
check("events arrive one by one over HTTPS", one_by_one, f"https://{SECURE}", False)
check("events arrive one by one over h2", one_by_one, f"https://{SECURE}", True)
