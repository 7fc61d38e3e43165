"""A game on openenv 0.10's own server, which has one session at once, for TestPythonServer: guess.py PORT."""

import random
import sys

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    message: str


class Hint(Observation):
    text: str = ""


class Game(Environment):
    def reset(self, seed=None, episode_id=None, **rest):
        self.secret = random.Random(seed).randint(1, 100)
        self.steps = 0
        return Hint(text="Guess a number up to 100.", done=False, reward=0.0)

    def step(self, action, **rest):
        self.steps += 1
        n = int(action.message)
        if n == self.secret:
            return Hint(text="Right.", done=True, reward=1.0)
        return Hint(text="Higher." if n < self.secret else "Lower.", done=False, reward=0.0)

    @property
    def state(self):
        return State(step_count=self.steps)


uvicorn.run(create_app(Game, Guess, Hint, env_name="guess"), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
