"""Chains of reasoning: read into triples, marked by a judge, scored against the truth."""
