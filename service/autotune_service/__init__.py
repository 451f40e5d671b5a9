"""The HTTP service: lookups, uploads and tuning requests under ``/v1``, and pages for people."""
