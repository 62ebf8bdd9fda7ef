"""The paper's ablations on digital patients: one budget, one command, one table."""
