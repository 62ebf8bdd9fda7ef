"""The paper's experiments on digital patients: one budget, one command, one table."""
