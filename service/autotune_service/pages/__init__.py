"""The pages of the service: what is tuned, what is missing, and why a config wins."""
