"""The `tumorchain` command: one file per subcommand, each a thin call."""
