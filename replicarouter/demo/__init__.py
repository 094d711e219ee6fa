"""The demonstration: simulated replicas, the router and streaming users, and what the ledger shows."""
