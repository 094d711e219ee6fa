"""The data plane: bytes from clients to replicas and back, at protocol level."""
