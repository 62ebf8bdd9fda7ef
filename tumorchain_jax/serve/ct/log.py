"""The server's log: one JSON object a line on stderr, without names, questions or answers."""

import json
import logging
import sys


class JsonLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; an exception with its traceback."""
        values = {"time": self.formatTime(record), "event": record.getMessage()}
        values |= getattr(record, "fields", {})
        if record.exc_info:
            values["error"] = self.formatException(record.exc_info)
        return json.dumps(values)


def log_to_stderr() -> None:
    """Log the server's requests and failures."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("tumorchain.serve", "tumorchain_jax.serve"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
