"""Digital patients that can answer all 42 subtypes, as a benchmark of the same form."""
