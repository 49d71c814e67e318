"""Many runs: grids and their scale, engines that run them, the paper's tables and figures."""
