"""Five levels of what is known of a lesion, as text and back."""
