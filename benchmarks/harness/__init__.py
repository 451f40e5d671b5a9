"""What benchmarks share: points, tables, servers, evidence, and the processes they start."""
