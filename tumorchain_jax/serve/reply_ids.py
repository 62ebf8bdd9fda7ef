"""Names of replies."""

import itertools
import secrets
from collections.abc import Callable


def reply_ids() -> Callable[[], str]:
    """A function that gives names of replies, none twice."""
    prefix, numbers = secrets.token_hex(6), itertools.count()
    return lambda: f"chatcmpl-{prefix}{next(numbers):06x}"
