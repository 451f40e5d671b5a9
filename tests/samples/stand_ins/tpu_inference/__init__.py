"""Stands before the installed package, whose own ``__init__`` starts vLLM; the rest is the real
one's."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
