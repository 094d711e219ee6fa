"""How long an engine's steps take: profiles of measured machines. Numbers only; no clock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Step times of one engine.

    `decode_points` are (sequences in the batch, seconds of a step that gives each one token), by
    growing batch. `prefill_seconds_per_token` is added for each prompt token computed in a step.
    """

    name: str
    decode_points: tuple[tuple[int, float], ...]
    prefill_seconds_per_token: float

    def decode_seconds(self, sequences: int) -> float:
        """Duration of a step over `sequences`: linear between the points and on beyond the last."""
        points = self.decode_points
        if len(points) == 1 or sequences <= points[0][0]:
            return points[0][1]
        upper = next((i for i, point in enumerate(points) if point[0] >= sequences), -1)
        (low, low_seconds), (high, high_seconds) = points[upper - 1], points[upper]
        return low_seconds + (high_seconds - low_seconds) * (sequences - low) / (high - low)

    def step_seconds(self, sequences: int, prefill_tokens: int) -> float:
        """Duration of a step with `sequences` in the batch that computes `prefill_tokens` as well."""
        return self.decode_seconds(sequences) + prefill_tokens * self.prefill_seconds_per_token


DEFAULT_PROFILE = "h200-qwen-27b-fp8"

PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        # Decode: published time per token of a 27B FP8 model on one H200, alone, with 8 and with 32
        # streams a replica; beyond 32 the last slope goes on, which is an assumption. Prefill: SGLang's
        # cookbook for Qwen3.6-27B-FP8 on one H200 (0.5.16) has 487 ms to the first token of a lone
        # 8192-token prompt, which leaves 58 us a token beside the 11.5 ms of the step.
        Profile(DEFAULT_PROFILE, ((1, 0.0115), (8, 0.0133), (32, 0.022)), 58e-6),
        # Our own measurement of vLLM 0.32.0 with a two-layer model on one CPU core: 400 tokens a
        # second alone, about 2,000 with 8 streams, 24 ms to the first token of 858 uncached ones.
        Profile("tiny-cpu", ((1, 0.0025), (8, 0.004)), 25e-6),
        Profile("instant", ((1, 0.0),), 0.0),
    )
}
