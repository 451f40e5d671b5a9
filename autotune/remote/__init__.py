"""A service over HTTP, as a tuning machine uses it."""
