"""A model over HTTP, as OpenAI's API has it; needs the extra `serve`."""
