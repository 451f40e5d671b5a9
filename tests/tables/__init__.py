"""Tables of others: read, asked, written."""
