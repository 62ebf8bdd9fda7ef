"""The engine's agents by language models, each held to what the rules can check."""
