"""What the sentences of a report say."""
