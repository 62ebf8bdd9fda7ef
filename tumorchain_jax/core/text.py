"""Text for a terminal."""


def printable(text: str, allowed: str = "\n") -> str:
    """Replace what could control a terminal, or cannot be encoded, by spaces.

    File names, questions and a model's answers are data: an escape sequence in them must not move
    the cursor, and a lone surrogate must not end the program.

    Args:
        allowed: characters that stay although they are not printable.
    """
    return "".join(c if c.isprintable() or c in allowed else " " for c in text)
