"""What makes a run: its config, its folder, its checkpoint, and sweeps over many of them."""
