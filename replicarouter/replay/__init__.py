"""Policies of the router in virtual time: the same demand under each, against simulated engines."""
