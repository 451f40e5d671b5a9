"""Tables of tuned block sizes that others keep: read, asked, written."""
