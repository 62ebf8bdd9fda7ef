"""What a free text says, read by rules, or an abstention with its reason."""
