"""Several processes that serve one port: a keeper who knows the fleet, and workers who carry the requests."""
