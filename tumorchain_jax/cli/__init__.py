"""The `tumorchain` command: one file for each group of subcommands, which are thin calls."""
