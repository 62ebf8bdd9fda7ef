"""Runs over a list of cases: resumable, of any number of workers, always the same bytes."""
