"""What a run has sent, got and paid."""

from collections import Counter
from dataclasses import dataclass, field

from tumorchain_jax.core.errors import InputError, Stopped
from tumorchain_jax.llm.endpoint import ENDPOINT_HINT, Endpoint
from tumorchain_jax.llm.reply import Usage


@dataclass
class Ledger:
    """Counts of one run of one client.

    Attributes:
        sent: HTTP exchanges.
        paid: of the replies that came.
        uncounted: replies whose tokens the server did not count.
        maybe_paid: exchanges that ended without a reply although the server may have worked.
        from_journal: replies that were there already.
        faults: exchanges that failed, by what happened.
        set_aside: requests that ended without an answer, by kind of failure.
        done: requests that ended with one.
    """

    sent: int = 0
    paid: Usage = Usage()
    uncounted: int = 0
    maybe_paid: int = 0
    from_journal: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    set_aside: Counter[str] = field(default_factory=Counter)
    done: int = 0


class Budget:
    """The most that a journal's replies may have cost, those of earlier runs included.

    Args:
        limit: in the currency of the endpoint's price; None: no limit. 0 buys nothing: only what
            was answered before is given.

    Raises:
        InputError: it is negative, or the endpoint has no price.
    """

    def __init__(self, limit: float | None, endpoint: Endpoint):
        self._limit, self._endpoint = limit, endpoint
        if limit is None:
            return
        if not 0 <= limit < float("inf"):
            raise InputError("budget", "amount", str(limit), "0 or more", "change it")
        if endpoint.price is None:
            subject = f"endpoint {endpoint.name}"
            expected = "the price of its tokens, as there is a budget"
            raise InputError(subject, "price", "none", expected, ENDPOINT_HINT)

    def check(self, spent: float) -> None:
        """Stop the run once the limit is reached.

        Raises:
            Stopped: it is.
        """
        if self._limit is None or spent < self._limit:
            return
        price = self._endpoint.price
        currency = "" if price is None else price.currency
        raise Stopped(
            f"at the budget of {self._limit:g} {currency} ({spent:.4g} spent, raise it to go on)"
        )
