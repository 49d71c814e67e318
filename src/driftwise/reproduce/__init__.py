"""The paper's tables, figures and claims, redrawn from sweeps beside the published numbers."""
