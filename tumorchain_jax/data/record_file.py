"""The records that a data set is made from, found by scan.

Records are JSON lines as `data/schema.py` has them, with a scan's name in place of its number.
"""

import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.json_lines import LineFields, parse_line, read_lines
from tumorchain_jax.data.schema import Record


class RecordFile:
    """Records by scan. They stay on disk: in memory is where each line begins.

    Attributes:
        path: the JSON lines.
        patients: name of a scan -> its patient's, of the scans that have records.

    Raises:
        InputError: a record is malformed, of a scan that is not there, of another patient than
            its scan's other records, or answers a multiple-choice question as another does not.
    """

    def __init__(self, path: Path, scans: Collection[str]):
        self.path = path
        self.patients: dict[str, str] = {}
        self._places: dict[str, list[tuple[str, int]]] = {}
        self._repeated: dict[str, list[InputError]] = {}
        first: dict[bytes, tuple[str, str]] = {}
        for where, offset, values in read_lines(path):
            fields = LineFields(where, values)
            if fields.text("scan") not in scans:
                expected = f"the name of one of the {len(scans)} scans"
                fields.refuse("scan", expected, "fix the record, or add the scan")
            record, name = Record.from_values(values | {"scan": 0}, where), values["scan"]
            if self.patients.setdefault(name, record.patient) != record.patient:
                expected = f"{self.patients[name]}, as in the records of {name} before"
                fields.refuse("patient", expected)
            earlier, _ = first.setdefault(_digest(name, record.to_json()), (where, ""))
            if earlier != where:
                found, expected = f"that of {earlier} again", "each record once"
                error = InputError(where, "record", found, expected, "remove one of them")
                self._repeated.setdefault(name, []).append(error)
                continue
            if record.choices:
                key = _digest(name, record.question, *sorted(record.choices))
                earlier, answer = first.setdefault(key, (where, record.answer))
                if answer != record.answer:
                    fields.refuse("answer", f"{answer!r}, as to the same question in {earlier}")
            self._places.setdefault(name, []).append((where, offset))

    def of_scan(self, name: str, number: int) -> Iterator[tuple[str, Record]]:
        """Yield a scan's records, without repetitions, each with its place in the file.

        Args:
            number: the scan's index in the data set.
        """
        with self.path.open("rb") as file:
            for where, offset in self._places.get(name, ()):
                file.seek(offset)
                values = parse_line(file.readline(), where)
                yield where, Record.from_values(values | {"scan": number}, where)

    def repeated(self, name: str) -> list[InputError]:
        """List a scan's records that repeat an earlier one, as errors that name both."""
        return self._repeated.get(name, [])

    def count(self, name: str) -> int:
        """Count a scan's records, repeated ones too."""
        return len(self._places.get(name, ())) + len(self.repeated(name))


def _digest(*texts: str) -> bytes:
    return hashlib.sha256(json.dumps(texts).encode()).digest()[:16]
