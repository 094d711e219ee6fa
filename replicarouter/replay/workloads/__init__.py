"""Generated demand: one kind of users a file, one line in `WORKLOADS`."""

from replicarouter.replay.workloads.agents import AGENTS
from replicarouter.replay.workloads.base import Shape
from replicarouter.replay.workloads.chat import CHAT
from replicarouter.replay.workloads.live_sessions import LONG_HEADED, SHORT_HEADED
from replicarouter.replay.workloads.shared_prefix import PREFIX_GROUPS, PREFIX_MIX, SHARED_PREFIX

WORKLOADS: dict[str, Shape] = {
    shape.name: shape
    for shape in (CHAT, AGENTS, SHARED_PREFIX, PREFIX_GROUPS, PREFIX_MIX, LONG_HEADED, SHORT_HEADED)
}
