"""Measurements of the router against others; how and why is in README.md. Run with `python -m`."""
