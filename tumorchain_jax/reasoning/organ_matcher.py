"""Lambda of Eq. 2 on the device: match the organs that a generated text names, from its tokens.

Its twin on the host is `anatomy/organs.py: labels_named`.

The tokens are spelled out in bytes and an Aho-Corasick automaton over the bytes of the names, laid
backwards, runs over them from the last to the first: at each byte it knows the longest name that
starts there. A left-to-right walk over these then takes the names that do not overlap. So the
result does not depend on how the text was cut into tokens, and equals what the expression of
`anatomy/organs.py` finds in the same bytes; that module says which bytes part words.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, UInt8

from tumorchain_jax.anatomy.organs import NAMES, ORGANS, SOFT_SEPARATORS, WORD_BYTES

NONE = np.iinfo(np.int32).max
"""The offsets of an organ that is never named."""

# What the automaton reads: the kind of a byte, or the letter it is when some name uses it.
_HARD, _SOFT, _OTHER_WORD, _FIRST_LETTER = 0, 1, 2, 3


class OrganMatcher(NamedTuple):
    """Tables of the matcher: V tokens of at most M bytes, S states, C symbols, P names, O organs.

    Attributes:
        token_bytes: what each token spells, zero-padded; nothing for a special token.
        token_lengths: how many of these bytes count.
        symbols: the symbol of each byte value.
        goto: next state of a state at a symbol.
        after_separator: the state at the end of the text, or left of a separator.
        longest: the longest name a state completes, 0 for none. Names count from 1.
        name_lengths: symbols in each name; entry 0 is unused.
        name_labels: the organs each name names.
    """

    token_bytes: UInt8[Array, "V M"]
    token_lengths: Int[Array, " V"]
    symbols: Int[Array, " 256"]
    goto: Int[Array, "S C"]
    after_separator: Int[Array, ""]
    longest: Int[Array, " S"]
    name_lengths: Int[Array, " P"]
    name_labels: Bool[Array, "P O"]


class OrganMatches(NamedTuple):
    """Where each organ label is first named: byte offsets `[first, end)` in the text, or `NONE`."""

    first: Int[Array, "B O"]
    end: Int[Array, "B O"]


def _byte_symbols(names: Sequence[str]) -> np.ndarray:
    """int32 [256]: the symbol of each byte value."""
    symbols = np.full(256, _HARD, np.int32)
    symbols[list(WORD_BYTES)] = _OTHER_WORD
    symbols[list(SOFT_SEPARATORS)] = _SOFT
    letters = sorted(set("".join(names)) - {" "})
    for symbol, letter in enumerate(letters, start=_FIRST_LETTER):
        symbols[[ord(letter), ord(letter.upper())]] = symbol
    return symbols


def _automaton(words: Sequence[Sequence[int]], n_symbols: int) -> tuple[np.ndarray, np.ndarray]:
    """Aho-Corasick automaton: goto [S, C], and the longest of `words` (from 1) a state ends."""
    children: list[dict[int, int]] = [{}]
    longest = [0]
    for number, word in enumerate(words, start=1):
        state = 0
        for symbol in word:
            if symbol not in children[state]:
                children[state][symbol] = len(children)
                children.append({})
                longest.append(0)
            state = children[state][symbol]
        longest[state] = number

    goto = np.zeros((len(children), n_symbols), np.int32)
    fallback = [0] * len(children)
    queue = deque([0])
    while queue:  # shallow states first: a state falls back to one that is already complete
        state = queue.popleft()
        longest[state] = longest[state] or longest[fallback[state]]
        goto[state] = goto[fallback[state]]
        for symbol, child in children[state].items():
            fallback[child] = int(goto[state, symbol])
            goto[state, symbol] = child
            queue.append(child)
    return goto, np.array(longest, np.int32)


def build_matcher(
    token_bytes: Sequence[bytes], names: Mapping[str, tuple[int, ...]] = NAMES
) -> OrganMatcher:
    """The matcher of a vocabulary.

    Args:
        token_bytes: the bytes of each token id; empty for a special token.
        names: normalised name -> merged labels it names, as `organs.NAMES`.
    """
    symbols = _byte_symbols(list(names))
    spelled = [symbols[list(name.encode())] for name in names]
    # Read backwards, a name begins after a separator: the soft one stands for every kind.
    backwards = [[_SOFT, *reversed(word.tolist())] for word in spelled]
    goto, longest = _automaton(backwards, int(symbols.max()) + 1)
    after_separator = goto[0, _SOFT]
    goto[:, _HARD] = after_separator

    labels = np.zeros((1 + len(names), len(ORGANS)), bool)
    for row, named in zip(labels[1:], names.values(), strict=True):
        row[list(named)] = True

    padded = np.array(list(token_bytes), bytes)  # numpy pads with zeros
    return OrganMatcher(
        token_bytes=jnp.asarray(padded.view(np.uint8).reshape(len(padded), -1)),
        token_lengths=jnp.asarray([len(token) for token in token_bytes], jnp.int32),
        symbols=jnp.asarray(symbols),
        goto=jnp.asarray(goto),
        after_separator=jnp.asarray(after_separator),
        longest=jnp.asarray(longest),
        name_lengths=jnp.asarray([0, *map(len, spelled)], jnp.int32),
        name_labels=jnp.asarray(labels),
    )


def match_organs(
    matcher: OrganMatcher, tokens: Int[Array, "B T"], count: Int[Array, " B"]
) -> OrganMatches:
    """Find the first mention of every organ in each text (Lambda of Eq. 2).

    Takes about as many sequential steps as the longest text has bytes.

    Args:
        matcher: tables of the vocabulary.
        tokens: token ids; an id outside the vocabulary spells nothing.
        count: how many tokens of each row are text.
    """
    in_vocabulary = (tokens >= 0) & (tokens < len(matcher.token_lengths))
    is_text = in_vocabulary & (jnp.arange(tokens.shape[1]) < count[:, None])
    lengths = jnp.where(is_text, matcher.token_lengths[tokens], 0)
    n_bytes = jnp.max(jnp.sum(lengths, axis=1))
    return jax.vmap(_match_row, in_axes=(None, 0, 0, None))(matcher, tokens, lengths, n_bytes)


def _match_row(
    matcher: OrganMatcher,
    tokens: Int[Array, " T"],
    lengths: Int[Array, " T"],
    n_bytes: Int[Array, ""],
) -> OrganMatches:
    """One text, of at most `n_bytes` bytes: a bound all rows share, so that they run in step."""
    symbols, offsets = _spell(matcher, tokens, lengths)
    names = _longest_names(matcher, symbols, n_bytes)
    return _first_mentions(matcher, names, offsets)


def _spell(
    matcher: OrganMatcher, tokens: Int[Array, " T"], lengths: Int[Array, " T"]
) -> tuple[Int[Array, " N"], Int[Array, " N"]]:
    """The text's symbols, a run of soft separators as one, and the byte offset of each.

    N = T * M is room for the longest text; after the text's end the symbols are hard separators.
    """
    size = len(tokens) * matcher.token_bytes.shape[1]
    byte = jnp.arange(size)
    ends = jnp.cumsum(lengths)
    token = jnp.searchsorted(ends, byte, side="right")
    within = byte - (ends - lengths)[token]
    symbols = matcher.symbols[matcher.token_bytes[tokens[token], within]]
    symbols = jnp.where(byte < ends[-1], symbols, _HARD)

    soft = symbols == _SOFT
    after_soft = jnp.append(False, soft[:-1])
    (offsets,) = jnp.nonzero(~(soft & after_soft), size=size, fill_value=size)
    return symbols.at[offsets].get(mode="fill", fill_value=_HARD), offsets


def _longest_names(
    matcher: OrganMatcher, symbols: Int[Array, " N"], n_bytes: Int[Array, ""]
) -> Int[Array, " N"]:
    """The longest name, whole words only, that starts at each symbol; 0 for none."""

    def step(
        i: Int[Array, ""], carry: tuple[Int[Array, ""], Int[Array, " N"]]
    ) -> tuple[Int[Array, ""], Int[Array, " N"]]:
        state, names = carry
        position = n_bytes - 1 - i
        state = matcher.goto[state, symbols[position]]
        names = lax.dynamic_update_index_in_dim(names, matcher.longest[state], position, 0)
        return state, names

    start = (matcher.after_separator, jnp.zeros_like(symbols))
    _, names = lax.fori_loop(0, n_bytes, step, start)
    previous = jnp.append(_HARD, symbols[:-1])
    return jnp.where(previous < _OTHER_WORD, names, 0)


def _first_mentions(
    matcher: OrganMatcher, names: Int[Array, " N"], offsets: Int[Array, " N"]
) -> OrganMatches:
    """Take the names left to right, each after the end of the one before."""
    size = len(names)
    starts = jnp.where(names > 0, jnp.arange(size), size)
    # One entry more, for a name that ends with the buffer.
    next_start = jnp.append(lax.cummin(starts, reverse=True), size)

    def take(carry: tuple[Int[Array, ""], OrganMatches]) -> tuple[Int[Array, ""], OrganMatches]:
        position, found = carry
        start = next_start[position]
        name = names[start]
        stop = start + matcher.name_lengths[name]
        new = matcher.name_labels[name] & (found.first == NONE)
        first = jnp.where(new, offsets[start], found.first)
        end = jnp.where(new, offsets[stop - 1] + 1, found.end)
        return stop, OrganMatches(first, end)

    nothing = jnp.full(matcher.name_labels.shape[1], NONE, jnp.int32)
    _, found = lax.while_loop(
        lambda carry: next_start[carry[0]] < size,
        take,
        (jnp.int32(0), OrganMatches(nothing, nothing)),
    )
    return found


def character_span(text: bytes, start: int, end: int) -> tuple[int, int]:
    """Byte offsets of a name in `text` to character offsets in `text.decode(errors="replace")`.

    A name begins and ends with an ASCII byte, so what stands before it decodes to the same
    characters with and without the rest, whether or not it is valid UTF-8.
    """
    first = len(text[:start].decode(errors="replace"))
    return first, first + end - start
