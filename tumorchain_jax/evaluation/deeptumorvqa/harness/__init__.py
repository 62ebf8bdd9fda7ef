"""Tasks for other evaluation harnesses, which a user copies."""
