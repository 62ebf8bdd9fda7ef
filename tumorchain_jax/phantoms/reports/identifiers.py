"""Planted identifiers: names, dates, numbers and addresses of nobody, with where they stand."""

from dataclasses import dataclass
from random import Random

KINDS = ("name", "date", "record", "phone", "address", "e-mail")
_FIRST = (
    "Anna", "Maria", "Helga", "Ruth", "Linda", "Karen", "Ingrid", "Sofia", "Peter", "John",
    "Walter", "Klaus", "Robert", "James", "Stefan", "Georg", "Paul", "Thomas",
)  # fmt: skip
_LAST = (
    "Miller", "Weber", "Carter", "Schneider", "Hoffmann", "Baker", "Novak", "Larsen", "Keller",
    "O'Brien", "Fischer", "Cooper", "Lindqvist", "Moreau", "Rossi", "Young", "Brown", "Vogel",
)  # fmt: skip
_STREETS = (
    "Maple Street",
    "Mill Lane",
    "Station Road",
    "Church Street",
    "Oak Avenue",
    "High Street",
)
_STRASSEN = ("Hauptstraße", "Gartenweg", "Bahnhofstraße", "Lindenallee", "Am Markt", "Schulstraße")
_CITIES = ("Springfield", "Ashford", "Riverton", "Greenville")
_STAEDTE = ("Neustadt", "Altdorf", "Bergheim", "Mühlhausen")
_MONTHS = ("January", "March", "April", "June", "August", "October", "December")
_MONATE = ("Januar", "März", "April", "Juni", "August", "Oktober", "Dezember")


@dataclass(frozen=True)
class Identifier:
    """Something that names a person.

    Attributes:
        kind: one of `KINDS`.
        start, end: characters of the text.
    """

    kind: str
    start: int
    end: int


def plant(text: str, language: str, seed: int) -> tuple[str, tuple[Identifier, ...]]:
    """Put a letterhead before a report, and a signature after it, as hospitals print them.

    Args:
        text: of the report.
        language: `en` or `de`.

    Returns:
        The text, and where identifiers stand in it.
    """
    rng = Random(f"identifiers {seed}")
    make = _german if language == "de" else _english
    parts: list[tuple[str, str]] = [*make(rng, True), ("", text), *make(rng, False)]
    found: list[Identifier] = []
    whole = ""
    for kind, part in parts:
        if kind:
            found.append(Identifier(kind, len(whole), len(whole) + len(part)))
        whole += part
    return whole, tuple(found)


def _name(rng: Random) -> tuple[str, str]:
    return rng.choice(_FIRST), rng.choice(_LAST)


def _english(rng: Random, head: bool) -> list[tuple[str, str]]:
    first, last = _name(rng)
    phone = f"{rng.randint(201, 989)}-555-{rng.randint(0, 9999):04}"
    if rng.random() < 0.3:
        phone = f"({phone[:3]}) {phone[4:]}"
    date = rng.choice((
        f"{rng.randint(1, 12):02}/{rng.randint(1, 28):02}/{rng.randint(1931, 1989)}",
        f"{rng.randint(1, 28)} {rng.choice(_MONTHS)} {rng.randint(1931, 1989)}",
        f"{rng.choice(_MONTHS)} {rng.randint(1, 28)}, {rng.randint(1931, 1989)}",
        f"{rng.randint(1931, 1989)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
    ))  # fmt: skip
    if not head:
        title = rng.choice(("Dr. ", "Electronically signed by ", "Reported by: Dr "))
        mail = f"{first}.{last}".lower().replace("'", "") + "@example.org"
        tail = [("", f"\n{title}"), ("name", f"{first} {last}")]
        tail += [("", rng.choice((", ", " on "))), ("date", date)]
        return tail + ([("", "\nContact: "), ("e-mail", mail)] if rng.random() < 0.6 else [])
    title = rng.choice(("Patient: ", "Name: ", "Patient name: "))
    name = rng.choice((f"{first} {last}", f"{last}, {first}"))
    number = rng.choice((str(rng.randint(10**6, 10**8)), f"A{rng.randint(10**5, 10**7)}"))
    street = f"{rng.randint(2, 250)} {rng.choice(_STREETS)}, {rng.choice(_CITIES)}"
    parts = [("", title), ("name", name), ("", rng.choice(("\nDOB: ", "  Date of birth: ")))]
    parts += [("date", date), ("", rng.choice(("\nMRN: ", "\nMedical record number: ", "  MRN ")))]
    parts += [("record", number)]
    if rng.random() < 0.6:
        parts += [("", "\nAddress: "), ("address", street)]
    if rng.random() < 0.6:
        parts += [("", rng.choice(("\nPhone: ", "\nTel. "))), ("phone", phone)]
    return [*parts, ("", "\n\n")]


def _german(rng: Random, head: bool) -> list[tuple[str, str]]:
    first, last = _name(rng)
    date = rng.choice((
        f"{rng.randint(1, 28):02}.{rng.randint(1, 12):02}.{rng.randint(1931, 1989)}",
        f"{rng.randint(1, 28)}. {rng.choice(_MONATE)} {rng.randint(1931, 1989)}",
    ))  # fmt: skip
    if not head:
        title = rng.choice(("Dr. med. ", "Gez. Dr. ", "Oberarzt Dr. "))
        return [("", f"\n{title}"), ("name", f"{first} {last}"), ("", ", "), ("date", date)]
    place = f"{rng.randint(10000, 99999)} {rng.choice(_STAEDTE)}"
    street = f"{rng.choice(_STRASSEN)} {rng.randint(2, 120)}, {place}"
    parts = [("", rng.choice(("Patient: ", "Name: "))), ("name", f"{last}, {first}")]
    parts += [("", rng.choice((", geb. ", "\nGeburtsdatum: "))), ("date", date)]
    number = str(rng.randint(10**6, 10**8))
    parts += [("", rng.choice(("\nFallnummer: ", "\nPatienten-ID: "))), ("record", number)]
    if rng.random() < 0.6:
        parts += [("", "\nAnschrift: "), ("address", street)]
    if rng.random() < 0.6:
        phone = f"0{rng.randint(200, 999)} {rng.randint(10000, 9999999)}"
        parts += [("", "\nTelefon: "), ("phone", phone)]
    return [*parts, ("", "\n\n")]
