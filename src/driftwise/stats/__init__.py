"""Two-sample statistics: pure functions on arrays."""
