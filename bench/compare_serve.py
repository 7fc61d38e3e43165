#!/usr/bin/env python3
"""Puts onering serve beside llama-server: one conversation, and many clients at once.

    python bench/compare_serve.py --onering ./onering --llama llama-server --model DIR --gguf FILE [--base-dtype int8]

DIR is a model folder with a tokenizer and FILE the same model for llama.cpp. Both servers
run alone, one after the other, on --threads threads, and answer the same requests for
completions as streams. A conversation is a prompt of about --prompt tokens and a second
turn behind it; then each number of --clients asks at once for --tokens tokens behind
short prompts of its own. Prints one JSON object: by server the seconds to the first token
of both turns, the tokens a second of one client, and those of all clients together.
"""
import argparse, json, random, socket, statistics, subprocess, sys, threading, time, urllib.error, urllib.request

WORDS = "one two three four five six seven eight nine ten red blue green stone river house light water".split()


def words(n, seed):
    r = random.Random(seed)
    return " ".join(r.choice(WORDS) for _ in range(n))


def stream(url, prompt, tokens):
    """Returns the text, the seconds to the first token, those of the rest, and how many tokens came."""
    body = {"model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 1.0, "seed": 1, "stream": True, "stream_options": {"include_usage": True}}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    began, first, text, count = time.perf_counter(), None, "", 0
    try:
        answer = urllib.request.urlopen(request, timeout=600)
    except urllib.error.HTTPError as e:
        sys.exit(f"{url}: {e} {e.read().decode()}")
    with answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event.get("usage"):
                count = event["usage"]["completion_tokens"]
            if event["choices"] and event["choices"][0].get("text"):
                first = first or time.perf_counter() - began
                text += event["choices"][0]["text"]
    return text, first, time.perf_counter() - began - first, count


def measure(url, a):
    prompt = words(a.prompt, 0)
    stream(url, "one two", 4)
    text, cold, rest, count = stream(url, prompt, a.tokens)
    turn = prompt + text + "\n" + words(40, 1)
    _, warm, more, others = stream(url, turn, a.tokens)
    found = {"first_token": cold, "first_token_next_turn": warm, "tokens_per_second": (count + others - 2) / (rest + more), "clients": {}}
    for n in map(int, a.clients.split(",")):
        counts = []
        one = lambda i: counts.append(stream(url, words(60, 100 * n + i), a.tokens)[3])
        all = [threading.Thread(target=one, args=(i,)) for i in range(n)]
        began = time.perf_counter()
        for t in all:
            t.start()
        for t in all:
            t.join()
        if len(counts) < n:
            sys.exit(f"{n - len(counts)} of {n} requests failed")
        found["clients"][n] = sum(counts) / (time.perf_counter() - began)
    return found


def served(command, port, a):
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(url + "/health", timeout=5)
                break
            except (urllib.error.URLError, ConnectionError):
                if p.poll() is not None:
                    sys.exit(f"{command[0]} ended with {p.returncode}")
                time.sleep(0.2)
        return measure(url, a)
    finally:
        p.terminate()
        p.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onering", required=True)
    p.add_argument("--llama", required=True, help="the program llama-server")
    p.add_argument("--model", required=True)
    p.add_argument("--gguf", required=True)
    p.add_argument("--dtype", default="float32")
    p.add_argument("--base-dtype", default="float32")
    p.add_argument("--prompt", type=int, default=1000, help="words of the first turn, each a token")
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--clients", default="8,64")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--turns", type=int, default=1)
    a = p.parse_args()
    slots = max(map(int, a.clients.split(",")))
    result = {"onering": [], "llama": []}
    for _ in range(a.turns):
        port = free_port()
        result["onering"].append(served([a.onering, "serve", "--model", a.model, "--addr", f"127.0.0.1:{port}", "--slots", str(slots), "--dtype", a.dtype, "--base-dtype", a.base_dtype,
                                         "--threads", str(a.threads), "--queue", "256", "--name", "model"], port, a))
        port = free_port()
        result["llama"].append(served([a.llama, "-m", a.gguf, "--host", "127.0.0.1", "--port", str(port), "-t", str(a.threads), "-np", str(slots), "-c", str(2048 * slots), "--no-webui"], port, a))
    json.dump(result, sys.stdout, indent=1)
    print()


main()
