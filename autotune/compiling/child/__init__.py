"""What runs under the JAX of the toolchain, in processes that the parent starts by file path.

Nobody imports it; plain data crosses."""
