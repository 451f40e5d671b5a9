"""The tuning loop: propose a candidate, compile it, keep what became of it, propose the next."""
