"""Every sentence, table and unit that people read."""
