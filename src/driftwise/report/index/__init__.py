"""One page over all runs of all sweeps, and a light page for each run."""
