"""Is a config right? It is run in Pallas TPU interpret mode against the kernel's reference.

``gate`` asks the question in the child; ``verdict`` is the answer that crosses to the parent.
"""
