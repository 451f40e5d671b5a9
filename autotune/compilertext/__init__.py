"""The compiler's text and nothing else: its messages and its HLO, as pure functions of strings."""
