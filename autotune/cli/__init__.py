"""Commands: thin, imported one by one, the only place that knows every part."""
