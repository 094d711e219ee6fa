"""An honest little vLLM without a model: real HTTP, a real queue, measured step times, made-up words.

In tests: `engine = SimulatedEngine(EngineOptions(profile="instant"))`, `port = await engine.start()`,
... `await engine.stop()`; read `url`, `running`, `waiting`, `requests`, `aborted`, `connections`."""

from replicarouter.simulator.engine import SimulatedEngine, start_engines
from replicarouter.simulator.options import EngineOptions
from replicarouter.simulator.profiles import DEFAULT_PROFILE, PROFILES

__all__ = ["DEFAULT_PROFILE", "PROFILES", "EngineOptions", "SimulatedEngine", "start_engines"]
