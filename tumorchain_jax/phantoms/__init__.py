"""Digital patients: bodies, lesions, records, reports and data sets whose truth is known."""
