"""What all benchmarks share: contestants, load generation, measurements, comparison and reports."""
