"""The drop-in proxy: searches go on to the cluster with better text clauses, everything else as it came."""
