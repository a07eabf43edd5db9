"""Networks that cluster, and their parts."""
