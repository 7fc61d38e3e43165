"""Clients of others, as they are, in a loop of tools: python clients.py URL"""

import asyncio
import json
import os
import sys

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import agents
import openai
import pydantic_ai
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

url = sys.argv[1]
question = "What is 17 + 25?"
schema = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def with_openai(stream):
    client = openai.OpenAI(base_url=url, api_key="none")
    messages = [{"role": "user", "content": question}]
    for _ in range(4):
        common = {"model": "base", "messages": messages, "tools": [schema], "parallel_tool_calls": True, "seed": 1}
        if stream:
            with client.chat.completions.stream(**common) as events:
                for _ in events:
                    pass
                choice = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(**common).choices[0]
        if choice.finish_reason != "tool_calls":
            return choice.message.content
        messages.append(choice.message.model_dump(exclude_none=True))
        for call in choice.message.tool_calls:
            result = add(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})


async def with_pydantic(stream):
    model = OpenAIChatModel("base", provider=OpenAIProvider(base_url=url, api_key="none"))
    agent = pydantic_ai.Agent(model, tools=[add], system_prompt="Use the tool.")

    async def listen(_, events):  # with a listener the answers are streamed
        async for _ in events:
            pass

    return (await agent.run(question, event_stream_handler=listen if stream else None)).output


async def with_agents(stream):
    client = openai.AsyncOpenAI(base_url=url, api_key="none")
    model = agents.OpenAIChatCompletionsModel(model="base", openai_client=client)
    agent = agents.Agent(name="sum", instructions="Use the tool.", model=model, tools=[agents.function_tool(add)])
    if not stream:
        return (await agents.Runner.run(agent, question)).final_output
    result = agents.Runner.run_streamed(agent, question)
    async for _ in result.stream_events():
        pass
    return result.final_output


async def main():
    for stream, what in ((False, ""), (True, ", streamed")):
        print(f"openai{what}: {with_openai(stream)}")
        print(f"pydantic-ai{what}: {await with_pydantic(stream)}")
        print(f"openai-agents{what}: {await with_agents(stream)}")


asyncio.run(main())
