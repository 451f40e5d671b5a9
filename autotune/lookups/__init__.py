"""Which published record answers a question, from memory or from a file."""
