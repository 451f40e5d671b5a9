"""The HTTP service and its dashboard. Not built yet: see CHANGELOG.md."""
