"""Whether the router lets through as many requests as the fleet can run."""

import math

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.errors import Unreadable
from replicarouter.acceptance.finding import Finding, failed, passed, skipped, warned, worst
from replicarouter.acceptance.limits import ASSUMED_MAX_NUM_SEQS, Bound, bounds
from replicarouter.acceptance.pages import RouterPage
from replicarouter.acceptance.scene import Scene


async def run(scene: Scene, _model: str) -> Finding:
    """Compare each limit with what the engines run at a time and with the concurrency that was asked for."""
    if not scene.router:
        return skipped("no router is here")
    page = RouterPage(await scene.main.get("/metrics"))
    pools = [[replica.name for replica in scene.serving(model)] for model in scene.models]
    try:
        found = bounds(page, pools)
    except Unreadable as error:
        return failed(str(error), "is another program answering?")
    if not found:
        return passed("no limit")
    return worst([judged(bound, scene.wishes.concurrency) for bound in found])


def judged(bound: Bound, wanted: int) -> Finding:
    """Whether it holds back what is wanted, or what engines would run."""
    cure = bound.cure(wanted)
    figures = {bound.setting: bound.lets if math.isfinite(bound.lets) else None}
    short = max(bound.holders, key=lambda holder: holder.known - holder.cap)
    if short.cap < short.known and (bound.lets >= wanted or short.known > wanted):
        told = f"{bound.told} and {short.who} runs {short.known:.0f} requests at a time"
        return failed(f"{told}: {short.known - short.cap:.0f} would {_WAIT}", cure, **figures)
    if bound.lets < wanted:
        lets = f", which lets {bound.lets:.0f} through," if len(bound.holders) > 1 else ""
        told = f"{bound.told}{lets} and {wanted} streams are wanted (--concurrency)"
        return failed(f"{told}: {wanted - bound.lets:.0f} would {_WAIT}", cure, **figures)
    likely = max(bound.holders, key=lambda holder: holder.likely - holder.cap)
    if likely.cap < likely.likely:
        assumed = f"{ASSUMED_MAX_NUM_SEQS} assumed for each replica without max_num_seqs"
        told = f"{bound.told} and {likely.who} may run {likely.likely:.0f} requests at a time ({assumed})"
        return warned(
            f"{told}: the rest would {_WAIT}",
            f"{cure}; or tell replicas[].max_num_seqs, if the engines run fewer",
            **figures,
        )
    return passed(f"{bound.told}, {likely.who} runs {likely.likely:.0f} requests at a time", **figures)


_WAIT = "wait in the router while engines idle"

CHECK = Check(
    name="connector",
    asks="do the router's limits let through what the fleet runs, and --concurrency",
    costs="no tokens",
    run=run,
    fleet=True,
)
