"""Refusals of requests, as OpenAI's API words them."""

from typing import Any


class Refusal(Exception):
    """A request that is not answered.

    Args:
        status: of HTTP, 400 to 503.
        message: what is wrong, in one line.
        param: field of the request that is at fault; empty for none.
        retry_after_s: when to come back; 0: never.
    """

    def __init__(self, status: int, message: str, param: str = "", retry_after_s: int = 0):
        super().__init__(message)
        self.status, self.message, self.param = status, message, param
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """As JSON."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        error = {"message": self.message, "type": kind, "param": self.param or None, "code": None}
        return {"error": error}

    @property
    def headers(self) -> dict[str, str]:
        """Of the response."""
        return {"Retry-After": str(self.retry_after_s)} if self.retry_after_s else {}
