"""The frame of every page: style, notices, and a policy that allows nothing from outside.

No network, and no script but the page's own, which the policy allows by its hash. What comes from a
model, a user or a file goes through `escape` where the content is made; the policy is a second line
of defence.
"""

import base64
import hashlib
from html import escape
from importlib.resources import files

from tumorchain_jax import NOTICE

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def form_style() -> str:
    """CSS of pages on which people answer, for `more_style`."""
    return files("tumorchain_jax.report").joinpath("form.css").read_text("utf-8")


def form_script() -> str:
    """JavaScript of such pages, to go before a page's own: see `form.js`."""
    return files("tumorchain_jax.report").joinpath("form.js").read_text("utf-8")


def page(title: str, content: str, code: str = "", more_style: str = "", allowed: str = "") -> str:
    """Put content into a whole page, between two notices.

    Args:
        content: HTML.
        code: the only script that the page may run.
        more_style: CSS of this page alone.
        allowed: what the page's policy allows besides, as `connect-src 'self'`.
    """
    policy, element = f"{POLICY}; {allowed}" if allowed else POLICY, ""
    if code:
        sha256 = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{sha256}'"
        element = f"<script>{code}</script>\n"
    style = files("tumorchain_jax.report").joinpath("page.css").read_text("utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{style}{more_style}</style>
</head>
<body>
<main>
<p class="notice">{escape(NOTICE)}</p>
{content}
<p class="notice">{escape(NOTICE)}</p>
</main>
{element}</body>
</html>
"""
