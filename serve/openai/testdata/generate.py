"""The client with which verifiers 0.4 trains, as it is: python generate.py URL"""

import asyncio
import sys
from types import SimpleNamespace

import openai
from renderers.client import generate


class Renderer:
    """Its ids are given, and its answers are ids."""

    supports_tools = True

    def get_stop_token_ids(self):
        return [0]

    def parse_response(self, ids, **_):
        return SimpleNamespace(content="", reasoning_content=None, tool_calls=[], reasoning_complete=True)


async def main():
    client = openai.AsyncOpenAI(base_url=sys.argv[1], api_key="none")
    got = await generate(
        client=client, renderer=Renderer(), messages=[{"role": "user", "content": "a"}], model="base", prompt_ids=[99, 100],
        sampling_params={"temperature": 1.0, "top_p": 1.0, "max_tokens": 50, "seed": 3, "routed_experts_prompt_start": 4}, cache_salt="7", priority=1,
        extra_headers={"X-Session-ID": "s"},
    )
    assert len(got["completion_ids"]) == len(got["completion_logprobs"]) > 1, got
    assert got["completion_ids"][-1] == 0 and got["prompt_ids"] == [99, 100], got
    print(f"generate: {got['finish_reason']} after {len(got['completion_ids'])}, usage {got['usage']}")


asyncio.run(main())
