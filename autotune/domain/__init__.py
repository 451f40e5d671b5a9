"""Values: what is tuned, what became of it, what is published. They need nothing of the world."""
