"""JAX's own TPU kernels, declared for the search. ``versions`` knows how JAX versions differ."""
