"""A run as a picture: the first and last steps of units and DMAs, for `autotune explain`."""
