"""Numbers for Prometheus; none of them is about a patient."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tumorchain_jax.serve.ct.desk import Desk

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """Counts of requests and answers, and the queue."""

    def __init__(self, desk: Desk):
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tumorchain_requests",
            "Requests by route and status",
            ["route", "status"],
            registry=self.registry,
        )
        self.answers = Counter(
            "tumorchain_answers",
            "Questions that were answered, and those that were not: abstained",
            ["outcome"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "tumorchain_answer_seconds",
            "From the request to the end of its answer",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.uploads = Counter(
            "tumorchain_upload_bytes", "Bytes of scans that were kept", registry=self.registry
        )
        waiting = Gauge("tumorchain_waiting", "Questions in no slot yet", registry=self.registry)
        waiting.set_function(lambda: desk.waiting)
        running = Gauge("tumorchain_running", "Questions in slots", registry=self.registry)
        running.set_function(lambda: desk.running)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)
