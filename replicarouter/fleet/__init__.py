"""Which replicas exist, what we believe of each, and the ledger of where every request is."""
