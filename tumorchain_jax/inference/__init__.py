"""From a scan and a question to a report: prepare, run, record."""
