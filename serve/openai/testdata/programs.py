"""Programs that use clients of others as they are: python programs.py URL [NAME...]

Each asks for an object of a schema, or has the model call a tool, and prints what it got."""

import asyncio
import json
import os
import sys

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import anthropic
import instructor
import openai
import pydantic
import pydantic_ai
from agents import Agent, OpenAIResponsesModel, Runner, function_tool
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel as PydanticResponses
from pydantic_ai.providers.openai import OpenAIProvider

url = sys.argv[1]
client = openai.OpenAI(base_url=url + "/v1", api_key="none")
claude = anthropic.Anthropic(base_url=url, api_key="none")
question, sentence = "What is 17 + 25?", "Describe: Ada is 36 years old."


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0, le=150)


parameters = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"], "additionalProperties": False}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def openai_parse():
    messages = [{"role": "user", "content": sentence}]
    got = client.chat.completions.parse(model="base", messages=messages, response_format=Person).choices[0].message.parsed
    with client.chat.completions.stream(model="base", messages=messages, response_format=Person) as events:
        for _ in events:
            pass
        assert events.get_final_completion().choices[0].message.parsed == got
    return got


def openai_responses():
    tools = [{"type": "function", "name": "add", "description": "Add.", "strict": True, "parameters": parameters}]
    got = client.responses.create(model="base", instructions="Use the tool.", input=question, tools=tools)
    call = next(x for x in got.output if x.type == "function_call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": str(add(**json.loads(call.arguments)))}
    whole = client.responses.create(model="base", input=[result], previous_response_id=got.id, tools=tools).output_text
    listed = [{"role": "user", "content": question}] + [x.model_dump(exclude_none=True) for x in got.output] + [result]
    with client.responses.stream(model="base", input=listed, tools=tools) as events:
        kinds = [e.type for e in events]
        assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
        assert events.get_final_response().output_text == whole
    return whole


def openai_responses_parse():
    return client.responses.parse(model="base", input=sentence, text_format=Person).output_parsed


def openai_errors():
    try:
        client.responses.create(model="none", input="a")
    except openai.NotFoundError as e:
        try:
            client.responses.create(model="base", input=[{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}])
        except openai.BadRequestError:
            return f"refused {e.status_code}"


def anthropic_tools():
    tools = [{"name": "add", "description": "Add.", "input_schema": parameters}]
    messages = [{"role": "user", "content": question}]
    common = {"model": "base", "max_tokens": 500, "system": [{"type": "text", "text": "Use the tool."}], "tools": tools}
    assert claude.messages.count_tokens(model="base", messages=messages, tools=tools).input_tokens > 10
    for _ in range(3):
        with claude.messages.stream(messages=messages, **common) as events:
            for _ in events:
                pass
            got = events.get_final_message()
        whole = claude.messages.create(messages=messages, **common)
        assert [x.type for x in whole.content] == [x.type for x in got.content] and whole.usage.output_tokens == got.usage.output_tokens
        if got.stop_reason != "tool_use":
            return got.content[0].text
        messages.append({"role": "assistant", "content": got.content})
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": x.id, "content": [{"type": "text", "text": str(add(**x.input))}]} for x in got.content if x.type == "tool_use"]})


def anthropic_parse():
    return claude.messages.parse(model="base", max_tokens=500, messages=[{"role": "user", "content": sentence}], output_format=Person).parsed_output


def anthropic_errors():
    try:
        claude.messages.create(model="none", max_tokens=5, messages=[{"role": "user", "content": "a"}])
    except anthropic.NotFoundError as e:
        try:
            claude.messages.create(model="base", max_tokens=5, messages=[{"role": "user", "content": "a"}], tools=[{"type": "web_search_20250305", "name": "web_search"}])
        except anthropic.BadRequestError:
            return f"refused {e.status_code}"


def instructor_with(mode):
    def run():
        return instructor.from_openai(client, mode=mode).chat.completions.create(model="base", response_model=Person, messages=[{"role": "user", "content": sentence}])

    return run


def instructor_anthropic():
    return instructor.from_anthropic(claude).messages.create(model="base", max_tokens=500, response_model=Person, messages=[{"role": "user", "content": sentence}])


def langchain_with(model, **how):
    def run():
        chat = model("base")
        called = chat.bind_tools([add]).invoke(question).tool_calls[0]
        assert called["args"] == {"a": 17, "b": 25}, called
        return chat.with_structured_output(Person, **how).invoke(sentence)

    return run


def langchain_openai(name, **more):
    return ChatOpenAI(model=name, base_url=url + "/v1", api_key="none", **more)


def langchain_anthropic(name):
    return ChatAnthropic(model=name, base_url=url, api_key="none", max_tokens=500)


def agents_responses():
    model = OpenAIResponsesModel(model="base", openai_client=openai.AsyncOpenAI(base_url=url + "/v1", api_key="none"))
    agent = Agent(name="sum", instructions="Use the tool.", model=model, tools=[function_tool(add)])

    async def run():
        result = Runner.run_streamed(agent, question)
        async for _ in result.stream_events():
            pass
        return result.final_output

    structured = Runner.run_sync(Agent(name="read", model=model, output_type=Person), sentence).final_output
    assert structured == Person(name="Ada", age=36), structured
    return asyncio.run(run())


def pydantic_with(model):
    def run():
        got = pydantic_ai.Agent(model(), tools=[add]).run_sync(question).output
        assert got == "It is 42.", got
        native = pydantic_ai.Agent(model(), output_type=pydantic_ai.NativeOutput(Person)).run_sync(sentence).output
        called = pydantic_ai.Agent(model(), output_type=Person).run_sync(sentence).output
        assert native == called, (native, called)
        return called

    return run


openai_provider = lambda: OpenAIProvider(base_url=url + "/v1", api_key="none")

programs = {
    "openai parse": openai_parse,
    "openai responses": openai_responses,
    "openai responses parse": openai_responses_parse,
    "openai errors": openai_errors,
    "anthropic": anthropic_tools,
    "anthropic parse": anthropic_parse,
    "anthropic errors": anthropic_errors,
    "instructor tools": instructor_with(instructor.Mode.TOOLS),
    "instructor json": instructor_with(instructor.Mode.JSON),
    "instructor schema": instructor_with(instructor.Mode.JSON_SCHEMA),
    "instructor anthropic": instructor_anthropic,
    "langchain-openai": langchain_with(langchain_openai),
    "langchain-openai calls": langchain_with(langchain_openai, method="function_calling"),
    "langchain-openai responses": langchain_with(lambda name: langchain_openai(name, use_responses_api=True)),
    "langchain-anthropic": langchain_with(langchain_anthropic),
    "openai-agents responses": agents_responses,
    "pydantic-ai": pydantic_with(lambda: OpenAIChatModel("base", provider=openai_provider())),
    "pydantic-ai responses": pydantic_with(lambda: PydanticResponses("base", provider=openai_provider())),
}

for name in sys.argv[2:] or programs:
    try:
        print(f"{name}: {programs[name]()}")
    except Exception as e:
        print(f"{name}: {type(e).__name__}: {e}")
