"""DeepTumorVQA, both versions: question files, three rule sets, scores, synthetic cases."""
