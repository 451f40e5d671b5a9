"""The parent's side of the compilers: child processes that hold JAX and libtpu, and answer with
plain data.

A child may run under another Python with another JAX. ``libtpu`` knows all the compiler's switches.
"""
