"""Where the time goes, measured on the machine at hand."""
