"""What one simulated engine is like: its address, its model and its limits."""

from dataclasses import dataclass

from replicarouter.simulator.documents import API_VERSION
from replicarouter.simulator.faults import LOADING
from replicarouter.simulator.profiles import DEFAULT_PROFILE, PROFILES


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of one engine; anything out of range raises ValueError naming field, value and range.

    `port` 0 takes any free one. `kv_blocks` of `block_size` tokens are the KV cache: the default
    holds half a million tokens, what is left of an H200 beside a 27B FP8 model, roughly. Prompts and
    replies of the past are found in it again, by whole blocks, until their room is needed. `speed`
    divides every duration of the profile; 0 leaves them out. `phase`, a share of one lone decode
    step, delays the first step after idleness, so that engines of one process do not step in unison.
    `keep_alive` is in seconds: connections idle for that long are closed, uvicorn's default being 5.
    `control_port` (0: any, None: none) answers `/sim/*` whatever happens to `port`. For `load_seconds`
    the engine is what `loading` names, one after the other for an equal part of them (see `LOADING`).
    `max_num_queued_reqs` (0: no limit): running and waiting sequences beyond which it says that it is
    busy. `sse_keep_alive`: seconds between the comments of a stream that has no token yet; 0: none.

    `version` is what `/version` tells, `kv_cache_dtype` what the metrics page tells of the cache. The chat
    template puts `template` before every conversation. Each decode step drafts `speculative_tokens` (0:
    none) for each sequence and accepts each of them with probability `acceptance` if it accepted those
    before; a step takes no longer for it. The metrics page is `without_metrics`, families by their names.
    """

    host: str = "127.0.0.1"
    port: int = 0
    model: str = "sim"
    profile: str = DEFAULT_PROFILE
    max_num_seqs: int = 256
    kv_blocks: int = 32768
    block_size: int = 16
    speed: float = 1.0
    max_model_len: int = 32768
    phase: float = 0.0
    keep_alive: float = 5.0
    control_port: int | None = None
    load_seconds: float = 0.0
    loading: tuple[str, ...] = ("refused",)
    max_num_queued_reqs: int = 0
    sse_keep_alive: float = 0.0
    version: str = API_VERSION
    kv_cache_dtype: str = "auto"
    template: str = ""
    speculative_tokens: int = 0
    acceptance: float = 0.7
    without_metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require("port", self.port, 0 <= self.port <= 65535, "0 to 65535")
        _require("model", self.model, bool(self.model), "a name")
        _require("profile", self.profile, self.profile in PROFILES, ", ".join(PROFILES))
        _require("max_num_seqs", self.max_num_seqs, self.max_num_seqs >= 1, "1 or more")
        _require("kv_blocks", self.kv_blocks, self.kv_blocks >= 1, "1 or more")
        _require("block_size", self.block_size, self.block_size >= 1, "1 or more")
        _require("speed", self.speed, 0 <= self.speed < float("inf"), "0 or more")
        _require("max_model_len", self.max_model_len, self.max_model_len >= 2, "2 or more")
        _require("phase", self.phase, 0 <= self.phase < 1, "0 up to 1")
        _require("keep_alive", self.keep_alive, self.keep_alive > 0, "more than 0")
        control = self.control_port or 0
        _require("control_port", self.control_port, 0 <= control <= 65535, "0 to 65535")
        _require("load_seconds", self.load_seconds, 0 <= self.load_seconds < float("inf"), "0 or more")
        named = bool(self.loading) and set(self.loading) <= set(LOADING)
        _require("max_num_queued_reqs", self.max_num_queued_reqs, self.max_num_queued_reqs >= 0, "0 or more")
        _require("sse_keep_alive", self.sse_keep_alive, 0 <= self.sse_keep_alive < float("inf"), "0 or more")
        _require("version", self.version, bool(self.version), "a text")
        dtype = self.kv_cache_dtype
        _require("kv_cache_dtype", dtype, dtype.isidentifier(), "a name as fp8 or bfloat16")
        _require("speculative_tokens", self.speculative_tokens, self.speculative_tokens >= 0, "0 or more")
        _require("acceptance", self.acceptance, 0 <= self.acceptance <= 1, "0 to 1")
        _require("loading", ",".join(self.loading), named, f"a list of {', '.join(LOADING)}")

    @property
    def context(self) -> int:
        """Tokens that one sequence may hold: `max_model_len`, or the whole KV cache if that is less."""
        return min(self.max_model_len, self.kv_blocks * self.block_size)


def _require(name: str, value: object, holds: bool, accepted: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value!r}; accepted: {accepted}")
