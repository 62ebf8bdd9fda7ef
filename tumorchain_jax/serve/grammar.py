"""Schemas as masks over tokens, by llguidance."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int
from llguidance import LLMatcher, LLTokenizer

from tumorchain_jax.serve.refusal import Refusal

WHITE_SPACE = r"[\x20\n]{0,8}"
"""Between the signs of JSON. Without any, a weak model's numbers run on; without a limit, its white
space does."""


class Grammar:
    """Makes matchers of schemas for one tokenizer.

    Args:
        tokenizer: transformers' own, with a fast backend.
        vocabulary: size of the model's output, which may be larger.
        end_tokens: that end a reply.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, end_tokens: list[int]):
        text = tokenizer.backend_tokenizer.to_str()
        self._tokenizer = LLTokenizer(text, n_vocab=vocabulary, eos_token=end_tokens)

    def matcher(self, schema: Mapping[str, Any]) -> "Matcher":
        """Begin a reply of a schema.

        Raises:
            Refusal: (400) the schema is none, or has what cannot be enforced.
        """
        try:
            rules: Any = {"whitespace_flexible": True, "whitespace_pattern": WHITE_SPACE}
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=rules)
            matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
            problem = matcher.get_error() if matcher.is_error() else ""
        except ValueError as error:
            problem = str(error)
        if problem:
            line = " ".join(problem.split())[:200]
            raise Refusal(400, f"response_format: the schema: {line}", "response_format")
        return Matcher(matcher)


class Matcher:
    """The state of one reply.

    Attributes:
        complete: whether the reply is whole, and nothing can follow.
    """

    def __init__(self, matcher: LLMatcher):
        self._matcher = matcher
        self.complete = False

    def mask(self) -> Int[np.ndarray, " W"]:
        """The tokens that may come next, a bit each, 32 in a word."""
        return np.frombuffer(self._matcher.compute_bitmask(), np.int32)

    def take(self, token: int) -> bool:
        """Go on with a token; returns whether the reply is complete with it.

        Raises:
            Refusal: (400) the schema became too complex for the limits of its parser.
        """
        self._matcher.consume_token(token)
        if self._matcher.is_error():
            line = " ".join(self._matcher.get_error().split())[:200]
            raise Refusal(400, f"response_format: {line}", "response_format")
        self.complete = self._matcher.is_stopped()
        return self.complete
