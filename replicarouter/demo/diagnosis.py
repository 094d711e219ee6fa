"""One sentence: what limited the users, and what cures it."""

from replicarouter.demo.figures import Seen
from replicarouter.demo.ledger import LedgerReading

FULL_SHARE = 0.1
"""What waits in the engines all the time, in relation to what they run, when they are called full."""


def diagnose(seen: Seen, *, users: int) -> str:
    """The sentence for a run with so many users."""
    worst = seen.worst
    if worst is None or not worst.received:
        return "No request reached the router."
    if worst.in_router and worst.connector_waiting:
        return _held_by_connector(worst, users, engines_idle=seen.proxy_limited)
    if worst.in_router:
        return (
            f"Up to {worst.in_router} of {worst.accepted} requests were queued in the router because "
            "no replica had room for them."
        )
    if (seen.least_waiting or 0) > FULL_SHARE * seen.most_running:
        return (
            f"No request waited in the router, but the engines are full: they ran {seen.most_running:.0f} at "
            f"most while at least {seen.least_waiting:.0f} waited in them; more replicas would help."
        )
    return (
        f"No request waited in the router: the engines ran up to {seen.most_running:.0f} at once "
        f"for {users} users."
    )


def _held_by_connector(worst: LedgerReading, users: int, *, engines_idle: bool) -> str:
    sentence = (
        f"The router's connector limit of {worst.connector_limit} let only {worst.reached} of "
        f"{worst.accepted} requests reach the engines while {worst.connector_waiting} waited in the router"
    )
    if not engines_idle:
        return f"{sentence}; requests waited in the engines too, so the fleet itself is full."
    return f"{sentence}: set --connector-limit 0 or at least {users}."
