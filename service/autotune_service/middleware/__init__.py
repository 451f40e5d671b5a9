"""What every call passes on its way to a route."""
