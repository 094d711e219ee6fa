"""Running engines, seen by the real `openai` client and through their metrics."""

import asyncio
import json
import time
from typing import Any

import aiohttp
import openai
import pytest
from openai.types.chat import ChatCompletionToolParam
from prometheus_client.parser import text_string_to_metric_families

from replicarouter.simulator import EngineOptions, SimulatedEngine, start_engines
from tests.fakes.wire import eventually
from tests.simulator.conftest import Start

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}},
    },
}


def client_of(engine: SimulatedEngine) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0)


async def metrics(engine: SimulatedEngine) -> dict[str, float]:
    """Samples of the engine's page; those with a label of their own have its value in the name."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{engine.url}/metrics") as response,
    ):
        page = await response.text()
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            own = [v for k, v in sample.labels.items() if k not in ("engine", "model_name", "le")]
            found["/".join([sample.name.removeprefix("vllm:"), *own])] = sample.value
    return found


async def test_openai_client_gets_a_chat_answer(start: Start) -> None:
    async with client_of(await start()) as client:
        answer = await client.chat.completions.create(
            model="sim", messages=[{"role": "user", "content": "Hello"}], max_tokens=12
        )
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_openai_client_streams_reasoning_content_and_usage(start: Start) -> None:
    async with client_of(await start()) as client:
        stream = await client.chat.completions.create(
            model="sim",
            messages=[{"role": "user", "content": "Hello"}],
            max_tokens=20,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"chat_template_kwargs": {"enable_thinking": True}},
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta.model_dump(exclude_unset=True) for chunk in chunks[1:-1]]
    assert [next(iter(delta)) for delta in deltas] == ["reasoning"] * 10 + ["content"] * 10
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == 20
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == 10


async def test_openai_client_assembles_a_tool_call(start: Start) -> None:
    arguments, name, reason = "", None, None
    async with client_of(await start()) as client:
        stream = await client.chat.completions.create(
            model="sim",
            messages=[{"role": "user", "content": "Rain?"}],
            tools=[WEATHER],
            tool_choice="required",
            stream=True,
        )
        async for chunk in stream:
            for call in chunk.choices[0].delta.tool_calls or ():
                assert call.function is not None
                name = call.function.name or name
                arguments += call.function.arguments or ""
            reason = chunk.choices[0].finish_reason or reason
    assert (name, json.loads(arguments), reason) == ("get_weather", {"city": "Paris"}, "tool_calls")


async def test_openai_client_streams_completions_with_several_choices(start: Start) -> None:
    texts = {0: "", 1: ""}
    async with client_of(await start()) as client:
        stream = await client.completions.create(model="sim", prompt="Once", max_tokens=30, n=2, stream=True)
        async for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].text
        whole = await client.completions.create(model="sim", prompt="Once", max_tokens=30, n=2)
    assert [choice.text for choice in whole.choices] == list(texts.values())
    assert texts[0] != texts[1]


async def test_openai_client_lists_the_model(start: Start) -> None:
    async with client_of(await start(model="other")) as client:
        models = await client.models.list()
    assert [model.id for model in models.data] == ["other"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"model": "nope"}, openai.NotFoundError),
        ({"messages": "hi"}, openai.BadRequestError),
        ({"max_tokens": "many"}, openai.BadRequestError),
    ],
)
async def test_openai_client_raises_the_error_of_the_status(
    start: Start, fields: dict[str, Any], error: type[openai.APIStatusError]
) -> None:
    request: dict[str, Any] = {"model": "sim", "messages": [{"role": "user", "content": "x"}]}
    async with client_of(await start()) as client:
        with pytest.raises(error) as raised:
            await client.chat.completions.create(**{**request, **fields})
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["code"] == raised.value.status_code


async def test_requests_beyond_the_limit_wait_and_metrics_show_it(start: Start) -> None:
    engine = await start(profile="tiny-cpu", max_num_seqs=2, kv_blocks=1000)
    async with client_of(engine) as client:
        streams = [
            await client.chat.completions.create(
                model="sim",
                messages=[{"role": "user", "content": "Hello"}],
                max_tokens=10_000,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            for _ in range(5)
        ]
        await eventually(lambda: (engine.running, engine.waiting) == (2, 3), "two run, three wait")
        seen = await metrics(engine)
        for stream in streams:
            await stream.close()
    await eventually(lambda: (engine.running, engine.waiting) == (0, 0), "all were aborted")
    assert (seen["num_requests_running"], seen["num_requests_waiting"]) == (2, 3)
    assert seen["num_requests_waiting_by_reason/capacity"] == 3
    assert 0 < seen["kv_cache_usage_perc"] < 1
    assert (engine.requests, engine.aborted) == (5, 5)
    after = await metrics(engine)
    assert after["kv_cache_usage_perc"] == 0
    assert after["request_success_total/abort"] == 0


async def test_metrics_count_what_was_served(start: Start) -> None:
    engine = await start()
    async with client_of(engine) as client:
        for _ in range(3):
            await client.chat.completions.create(
                model="sim", messages=[{"role": "user", "content": "Hello"}], max_tokens=4
            )
    seen = await metrics(engine)
    assert seen["generation_tokens_total"] == 12
    assert seen["prompt_tokens_total"] == seen["prefix_cache_queries_total"] == 27
    assert seen["prefix_cache_hits_total"] == 0
    assert seen["request_success_total/length"] == 3
    assert seen["iteration_tokens_total_count"] == 12
    assert seen["time_to_first_token_seconds_count"] == 3
    assert seen["inter_token_latency_seconds_count"] == 9


async def ask(client: openai.AsyncOpenAI, messages: list[Any], **fields: Any) -> tuple[str, int, int]:
    """The answer's text, how many tokens the prompt had and how many of them were cached."""
    answer = await client.chat.completions.create(model="sim", messages=messages, extra_body=fields)
    usage = answer.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    cached = usage.prompt_tokens_details.cached_tokens
    assert cached is not None
    return answer.choices[0].message.content or "", usage.prompt_tokens, cached


async def test_every_turn_finds_all_turns_before_it(start: Start) -> None:
    engine = await start()
    messages: list[Any] = [{"role": "system", "content": "You are terse. " * 20}]
    queries = hits = 0
    known = 0  # tokens of the turn before and its answer
    async with client_of(engine) as client:
        for turn in range(4):
            messages.append({"role": "user", "content": f"And the {turn}th question? " * 9})
            text, prompt, cached = await ask(client, messages, max_tokens=60)
            assert known - 16 < cached <= known
            known = prompt + 60 - 1  # the last token is not computed
            messages.append({"role": "assistant", "content": text})
            queries, hits = queries + prompt, hits + cached
    seen = await metrics(engine)
    assert (seen["prefix_cache_queries_total"], seen["prefix_cache_hits_total"]) == (queries, hits)
    assert seen["prompt_tokens_cached_total"] == hits
    assert seen["kv_cache_usage_perc"] == 0


async def test_salt_hides_the_prompts_of_others(start: Start) -> None:
    messages = [{"role": "user", "content": "x" * 400}]
    async with client_of(await start()) as client:
        cached = [
            (await ask(client, messages, max_tokens=1, **salt))[2]
            for salt in ({}, {"cache_salt": "a"}, {}, {"cache_salt": "b"}, {"cache_salt": "a"})
        ]
        with pytest.raises(openai.BadRequestError, match="cache_salt"):
            await ask(client, messages, cache_salt="")
    assert cached == [0, 0, 96, 0, 96]


async def test_tokens_of_the_cache_take_no_time(start: Start) -> None:
    """Prefill of 8,000 tokens takes 0.2 s with this profile, that of the last block 0.4 ms."""
    engine = await start(profile="tiny-cpu")
    messages = [{"role": "user", "content": "x" * 32_000}]
    took = []
    async with client_of(engine) as client:
        for _ in range(2):
            began = time.monotonic()
            await ask(client, messages, max_tokens=1)
            took.append(time.monotonic() - began)
    assert took[0] >= 0.2
    assert took[1] < took[0] / 2


async def test_prompts_are_forgotten_when_others_need_their_room(start: Start) -> None:
    engine = await start(kv_blocks=40)
    async with client_of(engine) as client:
        for letter in "ab":
            await ask(client, [{"role": "user", "content": letter * 1600}], max_tokens=2)
        _, _, second = await ask(client, [{"role": "user", "content": "b" * 1600}], max_tokens=2)
        _, _, first = await ask(client, [{"role": "user", "content": "a" * 1600}], max_tokens=2)
    assert second == 400
    assert first < 400


async def test_choices_of_one_request_share_their_prompt(start: Start) -> None:
    engine = await start()
    async with client_of(engine) as client:
        answer = await client.chat.completions.create(
            model="sim", messages=[{"role": "user", "content": "x" * 400}], n=3, max_tokens=2
        )
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    seen = await metrics(engine)
    assert (seen["prefix_cache_queries_total"], seen["prefix_cache_hits_total"]) == (3 * 107, 2 * 96)


@pytest.mark.parametrize(("profile", "speed", "least"), [("tiny-cpu", 1, 0.25), ("tiny-cpu", 5, 0.05)])
async def test_steps_take_their_time(start: Start, profile: str, speed: float, least: float) -> None:
    async with client_of(await start(profile=profile, speed=speed)) as client:
        began = time.monotonic()
        await client.completions.create(model="sim", prompt="x", max_tokens=100)
        elapsed = time.monotonic() - began
    assert elapsed >= least * 0.98, "100 steps of 2.5 ms at this speed"


async def test_without_speed_the_delays_of_the_profile_are_left_out(start: Start) -> None:
    engine = await start(profile="h200-qwen-27b-fp8", speed=0)
    async with client_of(engine) as client, asyncio.timeout(20):
        answer = await client.completions.create(
            model="sim", prompt="x", max_tokens=20_000, extra_body={"ignore_eos": True}
        )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 20_000, "230 s by the profile"


async def test_engines_of_one_process_have_ports_and_phases_of_their_own() -> None:
    engines = await start_engines(EngineOptions(profile="instant"), 3)
    try:
        assert len({engine.port for engine in engines}) == 3
        assert [engine.options.phase for engine in engines] == [0, 1 / 3, 2 / 3]
        async with client_of(engines[1]) as client:
            await client.completions.create(model="sim", prompt="x", max_tokens=1)
        assert [engine.requests for engine in engines] == [0, 1, 0]
    finally:
        for engine in engines:
            await engine.stop()


async def test_taken_port_leaves_no_engine_behind(start: Start) -> None:
    taken = await start()
    with pytest.raises(OSError, match="address"):
        await start_engines(EngineOptions(port=taken.port - 1), 2)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", taken.port - 1)


async def test_engine_that_never_started_can_be_stopped() -> None:
    engine = SimulatedEngine()
    await engine.stop()
    assert engine.port == 0
