"""Other routers' rules as policies, for the replay alone: one rule a file, one line in `BASELINES`.

They are the shapes of rules as their documents and sources tell them, not those products."""

from replicarouter.policies.base import Policy
from replicarouter.replay.baselines.dynamo_like import DynamoLike
from replicarouter.replay.baselines.llm_d_like import LlmDLike
from replicarouter.replay.baselines.smg_like import SmgLike

BASELINES: dict[str, type[Policy]] = {
    "smg-like": SmgLike,
    "llm-d-like": LlmDLike,
    "dynamo-like": DynamoLike,
}
