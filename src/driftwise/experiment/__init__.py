"""What makes a run: its config, its parts, its folder, its checkpoint, its result."""
