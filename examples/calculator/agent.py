"""An agent that knows nothing of training: it asks a server of OpenAI's API, computes what the
model writes before "=", and asks again. onering runs it for each episode:

    onering train --config examples/calculator/agent.toml

OPENAI_BASE_URL and OPENAI_API_KEY say where to ask, ONERING_PROBLEM what. The reward is told by
POST /rl/reward, with a key that is read first and that nothing that an agent starts has; without
it the run's [reward] would grade the last turn.
"""

import json
import os
import re
import urllib.request

BASE = os.environ["OPENAI_BASE_URL"]
with open(int(os.environ["ONERING_REWARD_FD"])) as secret:
    REWARD_KEY = secret.readline().strip()
PROBLEM = json.loads(os.environ["ONERING_PROBLEM"])["text"]  # such as 129+955=


def post(url, body, key=os.environ["OPENAI_API_KEY"]):
    request = urllib.request.Request(url, json.dumps(body).encode(), {
        "Content-Type": "application/json", "Authorization": "Bearer " + key})
    return json.load(urllib.request.urlopen(request))


def computed(text):
    """The sum or difference that a text ends with."""
    a, operator, b = re.search(r"(\d+)([-+])(\d+)$", text).groups()
    return int(a) + int(b) if operator == "+" else int(a) - int(b)


text = PROBLEM
for turn in range(2):
    choice = post(BASE + "/completions", {"prompt": text, "stop": "=", "max_tokens": 40})["choices"][0]
    text += choice["text"]
    if not re.search(r"\d[-+]\d+$", text):
        break
    text += "=" + str(computed(text))

answer = re.search(r"boxed\{(-?\d+)\}", text)
right = answer is not None and int(answer[1]) == computed(PROBLEM[:-1])
post(BASE.removesuffix("/v1") + "/rl/reward", {"reward": float(right)}, REWARD_KEY)
