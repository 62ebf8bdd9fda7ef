"""The anatomy vocabulary: organs, their substructures, staging."""
