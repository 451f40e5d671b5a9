"""Finding kernels: where they are declared, their sources and their fingerprints."""
