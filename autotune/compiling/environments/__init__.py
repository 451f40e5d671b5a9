"""Toolchains side by side: virtual environments with a JAX each, to compile under."""
