"""replicarouter: a load-balancing proxy for fleets of LLM engine replicas."""

__version__ = "0.1.0"
