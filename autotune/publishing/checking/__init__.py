"""What an upgrade of the toolchain, or another chip, does to what is published."""
