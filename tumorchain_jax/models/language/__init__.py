"""Language-model families and their tokenizer."""
