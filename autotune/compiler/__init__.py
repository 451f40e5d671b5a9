"""The compiler boundary: child processes that hold JAX and libtpu, and answer with plain data.

``process`` and ``pool`` run in the parent and import no JAX; ``worker`` runs in the child,
possibly under another Python with another JAX; ``libtpu`` knows every switch of the compiler.
"""
