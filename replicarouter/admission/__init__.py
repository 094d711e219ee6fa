"""When a request may go, and to which replica: policy, candidates, and the lease that counts it."""
