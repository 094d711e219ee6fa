"""Whether the numbers are there that tell where requests are."""

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.errors import CheckError, NoAnswer, Refused
from replicarouter.acceptance.finding import Finding, Status, failed, passed, warned, worst
from replicarouter.acceptance.pace import together
from replicarouter.acceptance.pages import EnginePage, RouterPage, page_of
from replicarouter.acceptance.scene import Replica, Scene
from replicarouter.acceptance.words import START, counted, names

FAMILIES = (
    *("requests_received", "requests", "requests_receiving", "requests_queued", "requests_outstanding"),
    *("connector_limit", "connector_connections", "connector_waiting", "proxy_limited"),
    *("queue_seconds", "connect_seconds", "ttft_seconds", "upstream_ttft_seconds", "itl_seconds"),
    *("replica_state", "build_info", "event_loop_lag_seconds"),
)
"""What a router's page has at any time, idle or not."""

_ENGINE_CURES = {
    "vllm": "start vLLM without --disable-log-stats",
    "sglang": "start SGLang with --enable-metrics",
    "llamacpp": "start llama-server with --metrics",
}
"""By `owned_by` of the model card, which names the software."""

_LOSS = "without it the router cannot tell an engine's queue from a stall, and `diagnose` sees half"


async def run(scene: Scene, _model: str) -> Finding:
    """Read the router's page and each engine's."""
    findings = [await _routers(scene)] if scene.router else []
    pages = await together(map(page_of, scene.replicas))
    findings += [_engines(replica, page) for replica, page in zip(scene.replicas, pages, strict=True)]
    bad = worst(findings)
    if bad.status is not Status.PASS:
        return bad
    if scene.blind is not None:
        why = f"the router's page is complete; {scene.unseen}"
        return warned(why, scene.blind.cure) if scene.blind.cure else passed(why)
    kinds = sorted({page.dialect for page in pages if isinstance(page, EnginePage)})
    told = [f"of {counted(len(pages), 'engine')} ({', '.join(kinds)})"] if pages else []
    return passed("complete: the pages " + " and ".join((["of the router"] if scene.router else []) + told))


async def _routers(scene: Scene) -> Finding:
    page = RouterPage(await scene.main.get("/metrics"))
    missing = [name for name in FAMILIES if not page.has(name)]
    if missing:
        return failed(
            f"the router's page lacks {names(missing)}", "is another version, or another program, answering?"
        )
    return passed("the router's page is complete")


def _engines(replica: Replica, page: EnginePage | CheckError) -> Finding:
    software = str(replica.cards[0].get("owned_by", "")) if replica.cards else ""
    cure = _ENGINE_CURES.get(software, "switch the engine's Prometheus metrics on (SGLang: --enable-metrics)")
    if isinstance(page, Refused):
        return failed(f"{replica.name} has no /metrics ({page.status}): {_LOSS}", cure)
    if isinstance(page, CheckError):
        return failed(str(page), START if isinstance(page, NoAnswer) else cure)
    if page.dialect == "generic":
        if page.running is not None:
            return passed(f"{replica.name} tells how many requests run")
        return warned(f"{replica.name}: no series of vLLM or SGLang on its /metrics: {_LOSS}", cure)
    if page.reading.missing:
        return failed(
            f"{replica.name} lacks {names(page.reading.missing)}: {_LOSS}",
            "its names have changed, or a flag hides them; compare with its release notes",
        )
    return passed(f"{replica.name} is complete")


CHECK = Check(
    name="metrics",
    asks="do the router and every engine show the numbers that diagnoses need",
    costs="no tokens",
    run=run,
    fleet=True,
)
