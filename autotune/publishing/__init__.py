"""From the trials of a key to its published record."""
