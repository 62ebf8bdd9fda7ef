"""A sentence with what was found in it and the section that it stands in."""

from dataclasses import dataclass

from tumorchain_jax.engine.text.places import Locus
from tumorchain_jax.engine.text.sections import SectionKind
from tumorchain_jax.engine.text.sentences import Sentence
from tumorchain_jax.engine.text.vocabulary import Term


@dataclass(frozen=True)
class Setting:
    """Where and among what something stands.

    Attributes:
        text: of the report, in small letters.
        sentence: its characters.
        section: the kind of its section.
        terms: of the vocabulary, from left to right.
        loci: the places that it names.
        denied: it goes on with a list of what is not there.
    """

    text: str
    sentence: Sentence
    section: SectionKind
    terms: tuple[Term, ...] = ()
    loci: tuple[Locus, ...] = ()
    denied: bool = False

    @property
    def words(self) -> str:
        """The sentence itself."""
        return self.text[self.sentence.start : self.sentence.end]
