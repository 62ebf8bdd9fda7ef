"""Questions about CTs over HTTP, and the page that asks them."""
