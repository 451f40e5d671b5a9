"""tokamax's TPU kernels, declared for the search as its package has them (0.0.12 and newer)."""
