"""A run by names: its settings, what they are by default, and the components that they name."""
