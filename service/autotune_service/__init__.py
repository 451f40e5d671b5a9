"""The HTTP service. It only reads for now; the dashboard is not built yet."""
