"""Other settings while the router serves: when to read them again, and what becomes of the replicas."""
