"""What the engine asks of the world: small protocols, each named by who asks.

Adapters live elsewhere and are passed in by the commands and the service. A method of a database
commits before it returns, and raises ``StoreError`` when the database cannot be used.
"""
