"""The one HTTP client of the project for language models behind OpenAI-compatible endpoints."""
