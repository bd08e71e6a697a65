#!/usr/bin/env python3
"""Holds `tessera serve` against its clients: the official packages openai and anthropic, and lm-evaluation-harness.

usage: check_server.py TESSERA MODEL [--tasks FILE,...] [--limit N] [--add-bos] [--measure]
  MODEL      a Hugging Face folder, with a chat template for the first part
  --tasks    task files, scored by `lm_eval --model local-completions` against the server and by
             `tessera evaluate --tasks`; log-likelihoods must agree to 1e-4 and scores must be equal
  --add-bos  the tokenizer puts BOS before a text, which the harness then has to do
  --measure  prints tokens/s at 1, 8 and 32 streams
"""
import argparse
import asyncio
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

failures = []


def check(name, is_right, told=""):
    print(f"{'ok  ' if is_right else 'FAIL'} {name}" + ("" if is_right else f": {told}"), flush=True)
    if not is_right:
        failures.append(name)


@contextlib.contextmanager
def server(program, model, *options):
    """Runs the server and gives its address."""
    process = subprocess.Popen([program, "serve", model, "--port", "0", *options], stderr=subprocess.PIPE, text=True)
    try:
        address = None
        for line in process.stderr:
            print(line, end="", file=sys.stderr)
            if found := re.search(r"at (http://\S+)/v1", line):
                address = found.group(1)
                break
        if address is None:
            sys.exit("the server has not started")
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        print(process.stderr.read(), end="", file=sys.stderr)
        process.wait()


def check_embeddings(client, name, model):
    """The embeddings are those that Transformers' hidden states of the last token make, also as base64."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    texts = ["The sea", "Once upon a time there was a mosaic.", "x"]
    packed = client.embeddings.create(model=name, input=texts)
    plain = client.embeddings.create(model=name, input=texts, encoding_format="float")
    check("embeddings: base64 is float", [each.embedding for each in packed.data] ==
          [[float(torch.tensor(value, dtype=torch.float32)) for value in each.embedding] for each in plain.data])
    tokenizer, body = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model, dtype=torch.float64)
    worst = 0.0
    for text, made in zip(texts, packed.data):
        with torch.no_grad():
            hidden = body(torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state[0, -1]
        worst = max(worst, (hidden / hidden.norm() - torch.tensor(made.embedding, dtype=torch.float64)).abs().max().item())
    check(f"embeddings differ from Transformers' by {worst:.1e}", worst < 1e-4)


def check_openai(address, model):
    import openai

    client = openai.OpenAI(base_url=address + "/v1", api_key="none")
    name = client.models.list().data[0].id
    check("models.retrieve", client.models.retrieve(name).id == name)
    messages = [{"role": "user", "content": "Name three colours. Use a few words: café, 😀."}]
    usual = {"model": name, "messages": messages, "max_completion_tokens": 40, "temperature": 0.7, "seed": 5}
    whole = client.chat.completions.create(**usual, n=2, logprobs=True, top_logprobs=3)
    texts, tokens = ["", ""], [[], []]
    usage = None
    for chunk in client.chat.completions.create(**usual, n=2, logprobs=True, top_logprobs=3, stream=True,
                                                stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.logprobs:
                tokens[choice.index] += [entry.token for entry in choice.logprobs.content]
    check("a stream has the text of the whole", texts == [choice.message.content for choice in whole.choices], texts)
    check("a stream has the tokens of the whole",
          tokens == [[entry.token for entry in choice.logprobs.content] for choice in whole.choices])
    check("usage of a stream", usage.total_tokens == whole.usage.total_tokens, usage)
    check("two answers differ", texts[0] != texts[1])
    check("top_logprobs", all(len(entry.top_logprobs) == 3 for entry in whole.choices[0].logprobs.content))
    cut = texts[0][len(texts[0]) // 2:][:4]
    stopped = client.chat.completions.create(**usual, stop=[cut])
    check("stop", stopped.choices[0].message.content == texts[0].split(cut)[0] and
          stopped.choices[0].finish_reason == "stop", stopped)
    # The helper and parse() refuse answers that were cut off.
    with client.chat.completions.stream(**usual, stop=[cut]) as stream:
        final = stream.get_final_completion()
    check("stream() helper", final.choices[0].message.content == stopped.choices[0].message.content, final)
    parsed = client.chat.completions.parse(**usual, stop=[cut])
    check("parse()", parsed.choices[0].message.content == stopped.choices[0].message.content, parsed)
    again = client.chat.completions.create(**usual)
    check("cached_tokens", 0 < again.usage.prompt_tokens_details.cached_tokens < again.usage.prompt_tokens or
          again.usage.prompt_tokens <= 32, again.usage)
    completion = client.completions.create(model=name, prompt=["Once upon", "The sea"], max_tokens=8, temperature=0,
                                           logprobs=2, echo=True)
    check("echo", completion.choices[1].text.startswith("The sea") and completion.choices[0].logprobs.token_logprobs[0]
          is None, completion)
    check_tools(client, name)
    check_embeddings(client, name, model)
    for expected, call in (
            (openai.NotFoundError, lambda: client.chat.completions.create(model="other", messages=messages)),
            (openai.BadRequestError, lambda: client.chat.completions.create(model=name, messages=messages, n=500)),
            (openai.BadRequestError, lambda: client.completions.create(model=name, prompt="a " * 100000))):
        try:
            call()
            check(expected.__name__, False, "no error")
        except openai.APIStatusError as error:
            check(expected.__name__, isinstance(error, expected) and error.request_id, error)


def check_tools(client, name):
    """Calls that are forced, which any model can be made to write: whole, and as the helper of the client joins them."""
    schema = {"type": "object", "properties": {"town": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2]}},
              "required": ["town", "days"], "additionalProperties": False}
    function = {"name": "weather", "description": "Tells the weather.", "parameters": schema, "strict": True}
    usual = {"model": name, "messages": [{"role": "user", "content": "How warm is it in Oslo?"}], "temperature": 0,
             "max_completion_tokens": 200, "tools": [{"type": "function", "function": function}],
             "parallel_tool_calls": False}
    for choice, reason in (("required", "tool_calls"), ({"type": "function", "function": {"name": "weather"}}, "stop")):
        whole = client.chat.completions.create(**usual, tool_choice=choice).choices[0]
        call = whole.message.tool_calls[0]
        check(f"tool call, {reason}", whole.finish_reason == reason and call.function.name == "weather" and
              set(json.loads(call.function.arguments)) == {"town", "days"}, whole)
        with client.chat.completions.stream(**usual, tool_choice=choice) as stream:
            final = stream.get_final_completion().choices[0]
        joined = final.message.tool_calls[0]
        check(f"stream() helper, {reason}", final.finish_reason == reason and joined.function.name == "weather" and
              joined.function.arguments == call.function.arguments, final)
        answered = usual["messages"] + [whole.message.model_dump(exclude_none=True),
                                        {"role": "tool", "tool_call_id": call.id, "content": "12 degrees"}]
        check("the result of a call is taken", client.chat.completions.create(
            **{**usual, "messages": answered, "max_completion_tokens": 4}).choices[0].message)


def check_anthropic(address):
    import anthropic

    client = anthropic.Anthropic(base_url=address, api_key="none")
    usual = {"model": client.models.list().data[0].id, "max_tokens": 30, "extra_body": {"temperature": 0},
             "messages": [{"role": "user", "content": "Name three colours."}], "system": "Be brief."}
    whole = client.messages.create(**usual)
    check("messages.create", whole.content[0].text and whole.stop_reason in ("max_tokens", "end_turn"), whole)
    with client.messages.stream(**usual) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    check("messages.stream", text == whole.content[0].text and final.usage.output_tokens == whole.usage.output_tokens,
          final)
    counted = client.messages.count_tokens(model=usual["model"], messages=usual["messages"], system=usual["system"])
    read = whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    check("messages.count_tokens", counted.input_tokens == read, counted)
    try:
        client.messages.create(**{**usual, "model": "other"})
        check("anthropic.NotFoundError", False, "no error")
    except anthropic.NotFoundError as error:
        check("anthropic.NotFoundError", error.body["error"]["type"] == "not_found_error", error)


def check_harness(program, model, address, files, limit, adds_bos):
    import lm_eval
    from lm_eval.tasks import TaskManager

    os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp()
    command = [program, "evaluate", model, "--tasks", ",".join(files), "--json", "--log-samples"]
    command += ["--limit", str(limit)] if limit else []
    ours = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    folder = os.path.dirname(os.path.abspath(files[0]))
    arguments = {"model": os.path.basename(os.path.normpath(model)), "base_url": address + "/v1/completions",
                 "tokenizer": os.path.abspath(model), "num_concurrent": 4, "max_retries": 1,
                 "max_length": ours["max_length"], "add_bos_token": adds_bos}
    started = time.time()
    with contextlib.chdir(folder):
        manager = TaskManager(include_path=folder, include_defaults=False)
        theirs = lm_eval.simple_evaluate(
            model="local-completions", model_args=arguments, batch_size=8, limit=limit, log_samples=True,
            tasks=[os.path.splitext(os.path.basename(file))[0] for file in files], task_manager=manager)
    print(lm_eval.utils.make_table(theirs))
    worst, count = 0.0, 0
    for task, samples in theirs["samples"].items():
        mine = {sample["doc_id"]: sample for sample in ours["samples"][task]}
        for sample in samples:
            for one, other in zip(mine[sample["doc_id"]]["resps"], sample["resps"]):
                one, other = one[0], other[0]
                count += 1
                if isinstance(other, str):
                    check(f"{task}, document {sample['doc_id']}", one == other, f"{one!r} and {other!r}")
                    continue
                worst = max(worst, abs(float(one[0]) - float(other[0])))
                if bool(one[1]) != bool(other[1]):
                    check(f"{task}, document {sample['doc_id']}: greedy", False, f"{one} and {other}")
    check(f"{count} responses in {time.time() - started:.1f} s: log-likelihoods differ by {worst:.1e}", worst < 1e-4)
    for task, scores in theirs["results"].items():
        for key, value in scores.items():
            if isinstance(value, float) and task in ours["results"]:
                mine = ours["results"][task].get(key)
                check(f"{task} {key}", mine is not None and math.isclose(mine, value, rel_tol=1e-5, abs_tol=1e-9),
                      f"{mine} and {value}")


async def measure(address):
    import openai

    client = openai.AsyncOpenAI(base_url=address + "/v1", api_key="none")
    name = (await client.models.list()).data[0].id

    async def stream(number):
        first, count = None, 0
        started = time.time()
        async for chunk in await client.completions.create(
                model=name, prompt=f"Story number {number}:", max_tokens=128, temperature=1, seed=number, stream=True,
                stream_options={"include_usage": True}, extra_body={"ignore_eos": True}):
            first = first or time.time() - started
            count = chunk.usage.completion_tokens if chunk.usage else count
        return first, count, time.time() - started

    for streams in (1, 8, 32):
        started = time.time()
        done = await asyncio.gather(*(stream(number) for number in range(streams)))
        seconds = time.time() - started
        times = sorted(each[2] for each in done)
        print(f"{streams:3} streams: {sum(each[1] for each in done) / seconds:7.1f} tokens/s, first token after "
              f"{max(each[0] for each in done):.2f} s at most, slowest stream {times[-1] / times[len(times) // 2]:.2f} "
              "times the median", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--tasks", default="")
    parser.add_argument("--limit", type=float)
    parser.add_argument("--add-bos", action="store_true")
    parser.add_argument("--measure", action="store_true")
    arguments = parser.parse_args()
    with server(arguments.program, arguments.model) as address:
        with open(os.path.join(arguments.model, "tokenizer_config.json"), encoding="utf-8") as file:
            has_template = "chat_template" in file.read() or os.path.exists(
                os.path.join(arguments.model, "chat_template.jinja"))
        if has_template:
            check_openai(address, arguments.model)
            check_anthropic(address)
        if arguments.tasks:
            check_harness(arguments.program, arguments.model, address, arguments.tasks.split(","), arguments.limit,
                          arguments.add_bos)
        if arguments.measure:
            asyncio.run(measure(address))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
