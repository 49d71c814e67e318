"""Maps of features by the real UMAP: neighbours on the map are of one class, and a seed repeats it.

    python benchmarks/feature_map.py

Tests use a stand-in, as the first call of UMAP compiles for some ten seconds.
"""

from __future__ import annotations

import time

import numpy as np

from driftwise.datasets.readers.digits import load_digits
from driftwise.reproduce.feature_maps import in_two_dimensions, projection

SAMPLES = 600
LEAST = 0.9
"""fraction of samples whose nearest neighbour on the map is of their class"""


def main() -> None:
    if projection() != "UMAP":
        raise SystemExit("needs UMAP: pip install 'driftwise[umap]'")
    data = load_digits()
    features = data.images[:SAMPLES].reshape(SAMPLES, -1).astype(np.float64)
    labels = data.labels[:SAMPLES]
    began = time.perf_counter()
    made = in_two_dimensions(features)
    seconds = time.perf_counter() - began
    apart = np.linalg.norm(made[:, None] - made[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    agreeing = float((labels[apart.argmin(axis=1)] == labels).mean())
    print(f"{SAMPLES} digits in {seconds:.1f} s; the nearest neighbour agrees for {agreeing:.1%}")
    if made.shape != (SAMPLES, 2) or agreeing < LEAST:
        raise SystemExit(f"expected (samples, 2) and at least {LEAST:.0%}; got {made.shape}")
    if not np.array_equal(in_two_dimensions(features), made):
        raise SystemExit("a second map of the same features differs")


if __name__ == "__main__":
    main()
