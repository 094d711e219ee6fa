"""Whether the router opens as many connections as the fleet can run requests."""

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.finding import Finding, failed, passed, skipped
from replicarouter.acceptance.pages import RouterPage
from replicarouter.acceptance.scene import Scene


async def run(scene: Scene, _model: str) -> Finding:
    """Compare the connector limit with what the engines run at a time, where all tell, and with the
    concurrency that was asked for."""
    if not scene.router:
        return skipped("no router is here")
    page = RouterPage(await scene.main.get("/metrics"))
    limit = page.value("connector_limit")
    if limit is None:
        return failed("the router does not tell its connector limit", "is another program answering?")
    if not limit:
        return passed("no limit", limit=0)
    runs = {labels.get("replica", ""): value for labels, value in page.series("replica_max_num_seqs")}
    replicas = {labels.get("replica", "") for labels, _ in page.series("replica_state")}
    known = bool(runs) and replicas <= runs.keys()
    fleet = sum(runs.values()) if known else 0.0
    need = max(fleet, float(scene.wishes.concurrency))
    told = f"the fleet runs {need:.0f} requests at a time"
    if need > fleet:
        told = f"{need:.0f} streams are wanted (--concurrency)"
    if limit < need:
        return failed(
            f"the limit is {limit:.0f} and {told}: {need - limit:.0f} would wait in the router while engines"
            " idle",
            f"--connector-limit 0, or {need:.0f} at least",
            limit=limit,
            need=need,
        )
    return passed(f"the limit is {limit:.0f}, {told}", limit=limit, need=need)


CHECK = Check(
    name="connector",
    asks="is the connector limit as large as what the fleet runs, and as --concurrency",
    costs="no tokens",
    run=run,
    fleet=True,
)
