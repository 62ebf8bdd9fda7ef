"""The review of a sample of records by people: pages, verdicts, agreement."""
