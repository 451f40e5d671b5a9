"""What writes the pages of the reference, the schema of JSON and the pictures."""
