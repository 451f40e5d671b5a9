"""Is a config right? It is run in Pallas TPU interpret mode against the kernel's reference."""
