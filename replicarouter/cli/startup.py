"""What `serve` says when it starts, and the warnings that spare a slow benchmark."""

import ctypes
import resource
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from replicarouter import __version__
from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.replica import Replica
from replicarouter.settings import Settings
from replicarouter.words import counted, printable

ASSUMED_MAX_NUM_SEQS = 256
"""vLLM's usual default, for replicas whose own is not configured."""

ENGINE_KEEPALIVE = 5.0
"""Seconds after which uvicorn-based engines close an idle connection."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""glibc's malloc.h."""

KEPT = 2**23
"""Bytes of free memory that are not given back to the system: a large body comes in pieces of 256 KiB, and
to have the system take and give each of them costs more than to pass it on."""

SPARE_DESCRIPTORS = 64
"""Descriptors for listeners, probes, scrapes and logs."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many requests the fleet can run at once, and for how many replicas that is an assumption."""

    requests: int
    assumed: int


def return_large_blocks() -> None:
    """Have memory of eight mebibytes and more go back to the system as soon as it is freed; what a prompt of
    a mebibyte takes for a moment stays for the next one.

    glibc stops doing so by itself for sizes that it has seen freed (mallopt(3), M_MMAP_THRESHOLD): after
    one burst of large bodies the process would stay as large as all of them together.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 2**23)
        library.mallopt(_M_TRIM_THRESHOLD, KEPT)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of file descriptors to the hard one; returns what holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def fleet_capacity(settings: Settings) -> Capacity:
    """The sum of the replicas' `max_num_seqs`."""
    known = [replica.max_num_seqs for replica in settings.replicas]
    assumed = sum(one is None for one in known)
    return Capacity(sum(one or ASSUMED_MAX_NUM_SEQS for one in known), assumed)


def start_up_block(
    settings: Settings,
    replicas: Sequence[Replica],
    *,
    port: int,
    admin_port: int,
    descriptors: int,
    reload: str,
) -> str:
    """The block that `serve` prints: addresses, replicas, policy, limits, and a line for each mismatch.

    `reload` says when the settings are read again.
    """
    capacity = fleet_capacity(settings)
    ready = sum(replica.state is State.READY for replica in replicas)
    limit = settings.connector.limit or "none"
    assumed = (
        f" ({ASSUMED_MAX_NUM_SEQS} assumed for {counted(capacity.assumed, 'replica')} without max_num_seqs)"
        if capacity.assumed
        else ""
    )
    admin = f"http://{_in_url(settings.admin.host)}:{admin_port}" if admin_port else "off"
    each = " for each worker" if settings.workers > 1 else ""
    lines = [
        f"replicarouter {__version__}",
        f"  clients      {'https' if settings.tls.cert else 'http'}://{_in_url(settings.host)}:{port}",
        f"  operators    {admin}",
        *((f"  workers      {settings.workers} processes on this port",) if settings.workers > 1 else ()),
        f"  policy       {_policies(settings)}",
        f"  connector    limit {limit}; the fleet can run {counted(capacity.requests, 'request')}{assumed}",
        f"  descriptors  {descriptors}{each}; a request takes two",
        f"  settings     read again {reload}",
        f"  replicas     {ready} of {len(replicas)} ready",
        *(f"    {_replica_line(replica)}" for replica in replicas),
        *(f"  warning: {text}" for text in _warnings(settings, replicas, capacity, descriptors)),
    ]
    # Names and reasons are as engines write them.
    return "".join([f"{printable(line)}\n" for line in lines])


def _policies(settings: Settings) -> str:
    """The policy, those of pools that have others, and the one that is asked beside them."""
    others = "".join(f"; {model}: {pool.policy}" for model, pool in settings.pools.items())
    shadow = settings.policy_options.shadow
    return f"{settings.policy}{others}{f'; shadow: {shadow}' if shadow else ''}"


def _in_url(host: str) -> str:
    """A host as URLs write it: an address of version 6 in brackets."""
    return f"[{host}]" if ":" in host else host


def _replica_line(replica: Replica) -> str:
    models = ", ".join(card["id"] for card in replica.cards or ()) or "models unknown"
    reason = "" if replica.state is State.READY else f" ({replica.reason})"
    return f"{replica.name}  {replica.state.value}{reason}  {models}"


def _warnings(
    settings: Settings, replicas: Sequence[Replica], capacity: Capacity, descriptors: int
) -> Iterator[str]:
    limit = settings.connector.limit
    if 0 < limit < capacity.requests:
        yield (
            f"connector.limit {limit} is below the {counted(capacity.requests, 'request')} the fleet can "
            f"run: the rest will wait in the router while engines idle; set --connector-limit 0 or "
            f"at least {capacity.requests}"
        )
    each = settings.connector.limit_per_replica
    for replica in settings.replicas:
        most = replica.max_num_seqs or ASSUMED_MAX_NUM_SEQS
        if 0 < each < most:
            yield (
                f"connector.limit_per_replica {each} is below the {counted(most, 'request')} that replica "
                f"{replica.name} can run; raise it or set it to 0"
            )
            break
    for replica in settings.replicas:
        if replica.url.endswith("/v1"):
            yield (
                f"replica {replica.name}: its URL ends in /v1, which is put before every path (/v1/v1/…); "
                "leave /v1 out"
            )
    needed = 2 * capacity.requests + SPARE_DESCRIPTORS
    if descriptors < needed:
        yield (
            f"{descriptors} file descriptors are fewer than the {needed} that a full fleet takes; "
            "raise the limit (ulimit -n, LimitNOFILE=)"
        )
    if settings.connector.keepalive >= ENGINE_KEEPALIVE:
        yield (
            f"connector.keepalive {settings.connector.keepalive:g} is not below the {ENGINE_KEEPALIVE:g} s "
            "after which uvicorn-based engines close idle connections: requests may meet a closing one; "
            "set it to 3"
        )
    for one in replicas:
        if one.state is not State.READY:
            yield f"replica {one.name} is not ready: {one.why}; it joins when its probes pass"
