"""One JSON file per chip: the constants of the cost model, each number with its source."""
