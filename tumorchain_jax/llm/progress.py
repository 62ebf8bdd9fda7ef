"""Numbers of a run while it runs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """A moment of a run.

    Attributes:
        done, set_aside: requests that ended, with and without an answer.
        total: requests in all; None if nobody knows.
        from_journal: replies that were there already.
        in_flight, limit, ceiling: calls that are under way, that may be, and that may at most be.
        rate: requests that ended a second.
        faults: exchanges that failed.
        tokens: paid in this run.
        cost, currency: of all replies in the journal; no currency without a price.
        is_open: whether the breaker lets single calls through alone.
    """

    done: int
    set_aside: int
    total: int | None
    from_journal: int
    in_flight: int
    limit: int
    ceiling: int
    rate: float
    faults: int
    tokens: int
    cost: float
    currency: str
    is_open: bool

    @property
    def bound_by(self) -> str:
        """What keeps the run from going faster."""
        if self.is_open:
            return "the endpoint, which answers nothing"
        if self.in_flight < self.limit:
            return "this machine, or too few requests"
        return "its own ceiling" if self.limit >= self.ceiling else "the endpoint"

    def line(self) -> str:
        """The numbers in one line."""
        ended = self.done + self.set_aside
        count = f"{ended}" if self.total is None else f"{ended} of {self.total}"
        parts = [f"{count} requests", f"{self.rate:.1f}/s"]
        if self.total is not None and self.rate > 0:
            parts.append(f"{(self.total - ended) / self.rate:.0f} s left")
        parts += [f"{self.in_flight}/{self.limit} in flight", f"{self.tokens} tokens"]
        if self.currency:
            parts.append(f"{self.cost:.4f} {self.currency}")
        counts = {"from the journal": self.from_journal, "set aside": self.set_aside}
        counts["faults"] = self.faults
        parts += [f"{number} {name}" for name, number in counts.items() if number]
        return ", ".join(parts)
