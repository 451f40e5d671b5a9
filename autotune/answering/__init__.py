"""Lookups: matching, bundles, clients of models, and what goes to and from a service."""
