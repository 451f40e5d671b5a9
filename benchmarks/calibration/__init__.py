"""The simulator's constants and error bars: collected, fitted and written as data files."""
