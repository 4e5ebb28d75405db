"""Counters of the service, in the text format of Prometheus."""

from __future__ import annotations

import bisect
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import final

BUCKETS = (0.05, 0.1, 0.25, 0.5, 0.6, 0.7, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper ends of the histogram of seconds."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@final
class Metrics:
    """What has happened since the service started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._ended: Counter[str] = Counter()
        self._draws = 0
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def request(self, path: str, status: int) -> None:
        """Count an answer; `path` is one of the service's own, so that there are few."""
        with self._lock:
            self._requests[path, status] += 1

    def certificate(self, *, ended: str, draws: int, seconds: float) -> None:
        """Count a certificate, by why its draws ended."""
        with self._lock:
            self._ended[ended] += 1
            self._draws += draws
            self._seconds += seconds
            self._buckets[bisect.bisect_left(BUCKETS, seconds)] += 1

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """All numbers, and `gauges` by name with their explanation."""
        lines = []
        with self._lock:
            lines += _head("smoothmix_requests_total", "counter", "Answers by path and status.")
            for (path, status), count in sorted(self._requests.items()):
                labels = f'{{path="{path}",status="{status}"}}'
                lines.append(f"smoothmix_requests_total{labels} {count}")
            lines += _head(
                "smoothmix_certificates_total", "counter", "Certificates by why drawing ended."
            )
            for ended, count in sorted(self._ended.items()):
                lines.append(f'smoothmix_certificates_total{{ended="{ended}"}} {count}')
            lines += _head("smoothmix_draws_total", "counter", "Estimation draws.")
            lines.append(f"smoothmix_draws_total {self._draws}")
            lines += self._histogram()
        for name, (explanation, value) in gauges.items():
            lines += _head(name, "gauge", explanation)
            lines.append(f"{name} {value:g}")
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        name = "smoothmix_certificate_seconds"
        lines = _head(name, "histogram", "Seconds from arrival to answer.")
        total = 0
        for end, count in zip((*map(str, BUCKETS), "+Inf"), self._buckets, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{end}"}} {total}')
        lines.append(f"{name}_sum {self._seconds:.6f}")
        lines.append(f"{name}_count {total}")
        return lines


def _head(name: str, kind: str, explanation: str) -> list[str]:
    return [f"# HELP {name} {explanation}", f"# TYPE {name} {kind}"]


def resident_memory() -> float:
    """Bytes of memory that this process occupies; nan where the system does not tell."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return 1024 * float(line.split()[1])
    except OSError:
        pass
    return float("nan")
