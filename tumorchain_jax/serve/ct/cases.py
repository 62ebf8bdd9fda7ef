"""Scans made ready for questions, the last few kept."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from tumorchain_jax.anatomy.organs import labels_named
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.inference.case import PreparedCase, ensure_organs
from tumorchain_jax.inference.runner import EncodedScan
from tumorchain_jax.report.report import Report
from tumorchain_jax.serve.ct.limits import Limits
from tumorchain_jax.serve.ct.scan_file import check_scan_file
from tumorchain_jax.serve.ct.store import Stored
from tumorchain_jax.serve.refusal import Refusal

MOST_REPORTS = 32


@dataclass(frozen=True)
class Ready:
    """A scan that can be asked about.

    Attributes:
        name: of its file, for people.
    """

    name: str
    case: PreparedCase
    scan: EncodedScan


class Cases:
    """Prepares scans one at a time; keeps the last ones with what they were encoded to, and the
    last reports about them."""

    def __init__(self, analyzer: Analyzer, limits: Limits):
        self._analyzer, self._limits = analyzer, limits
        self._kept: OrderedDict[tuple[str, str], Ready] = OrderedDict()
        self._one = threading.Lock()
        self._reports: OrderedDict[str, tuple[str, Report]] = OrderedDict()
        self._reports_lock = threading.Lock()

    def get(self, file: Stored, mask: Stored | None, organs: Collection[int] = ()) -> Ready:
        """Prepare a scan, or find it prepared; with these organs (merged labels) segmented.

        Raises:
            Refusal: (400) the scan or its mask cannot be used; (413) it is too large.
        """
        key = file.id, "" if mask is None else mask.id
        with self._one:
            found = self._kept.get(key)
            try:
                ready = self._prepared(file, mask, organs, found)
            except InputError as error:
                raise Refusal(400, _told(error, file, mask), "file") from None
            self._kept[key] = ready
            self._kept.move_to_end(key)
            while len(self._kept) > self._limits.scans:
                (evicted, _), _ = self._kept.popitem(last=False)
                self._forget_reports(evicted)
        return ready

    def _prepared(
        self, file: Stored, mask: Stored | None, organs: Collection[int], found: Ready | None
    ) -> Ready:
        if found is None:
            for each in (file, mask):
                if each is not None:
                    check_scan_file(each.path, self._limits)
            case = self._analyzer.prepare(file.path, None if mask is None else mask.path)
        else:
            case = found.case
        with_organs = ensure_organs(case, organs, self._analyzer.checkpoint)
        if found is not None and with_organs is case:
            return found
        return Ready(file.name, with_organs, self._analyzer.runner.encode(with_organs))

    def forget(self, file_id: str) -> None:
        """Drop what was kept of a file."""
        with self._one:
            for key in [key for key in self._kept if file_id in key]:
                del self._kept[key]
        self._forget_reports(file_id)

    def keep(self, file_id: str, report: Report) -> str:
        """Keep one of the last `MOST_REPORTS` reports, of as many scans as are kept.

        A scan may be evicted while it is asked about: its report holds the image all the same.

        Returns:
            its id.
        """
        made = f"report-{secrets.token_urlsafe(18)}"
        with self._reports_lock:
            self._reports[made] = file_id, report
            while len(self._reports) > MOST_REPORTS or self._scans_told_of() > self._limits.scans:
                self._reports.popitem(last=False)
        return made

    def report(self, report_id: str) -> Report:
        """The report of an id.

        Raises:
            Refusal: (404) there is none, or not any more.
        """
        with self._reports_lock:
            found = self._reports.get(report_id)
        if found is None:
            raise Refusal(404, "there is no such report, or not any more: ask again")
        return found[1]

    def _scans_told_of(self) -> int:
        return len({file_id for file_id, _ in self._reports.values()})

    def _forget_reports(self, file_id: str) -> None:
        with self._reports_lock:
            for key in [key for key, (each, _) in self._reports.items() if each == file_id]:
                del self._reports[key]


def organs_of(question: str) -> set[int]:
    """Merged labels of the organs that a question names."""
    return {label for each in labels_named(question) for label in each.labels}


def _told(error: InputError, file: Stored, mask: Stored | None) -> str:
    """The error without the paths of this machine."""
    text = str(error).removesuffix("; " + error.hint)
    for each in (mask, file):
        if each is not None:
            text = text.replace(str(each.path), each.name)
    return text[:500]
