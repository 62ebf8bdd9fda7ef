"""TumorCoT records and how they become batches."""
