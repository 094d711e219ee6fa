"""The router's own answers on the main port, and the operator's door on a port of its own."""
