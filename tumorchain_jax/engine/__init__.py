"""TumorCoT data engine: CT and pathology reports in, reviewed chains of thought out."""
