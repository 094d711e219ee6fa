"""What is checked, one check a file, in the order in which they run: the cheap ones first."""

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.checks import (
    abort,
    concurrency,
    connector,
    health,
    max_length,
    metrics,
    models,
    needle,
    reasoning,
    replicas,
    request_id,
    same_answers,
    second_turn,
    streaming,
    template,
    tools,
    unknown_model,
    usage,
    version,
)

CHECKS: dict[str, Check] = {
    module.CHECK.name: module.CHECK
    for module in (
        replicas,
        health,
        models,
        version,
        max_length,
        template,
        metrics,
        connector,
        unknown_model,
        request_id,
        usage,
        streaming,
        same_answers,
        reasoning,
        tools,
        second_turn,
        abort,
        concurrency,
        needle,
    )
}
"""By name, as `--only` and `--skip` take them."""
