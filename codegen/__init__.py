"""From graphs to kernels: fusion, kernel IR, and the emitters that write it as source text."""
