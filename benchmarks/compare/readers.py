"""How a contestant's figure is found in what its run left behind."""
import json
import pathlib
import statistics

from compare.context import WARMUP_STEPS, Context
from compare.model import Measured
from compare.process import Finished


def last_object(finished: Finished) -> dict:
    """The JSON object of the output's last line."""
    lines = [line for line in finished.output.splitlines() if line.strip()]
    if not lines or not lines[-1].startswith("{"):
        raise ValueError("the output does not end with a JSON object")
    return json.loads(lines[-1])


def field(name: str):
    def read(finished: Finished, _folder: pathlib.Path) -> Measured:
        details = last_object(finished)
        return Measured(float(details[name]), details)
    return read


def decode_rate(context: Context):
    """Tokens a second, and as `sol` the share of what memory bandwidth allows."""
    def read(finished: Finished, _folder: pathlib.Path) -> Measured:
        details = last_object(finished)
        rate = float(details["tokens_per_s"])
        if context.bytes_per_s is not None and "bytes_per_token_read" in details:
            limit = context.bytes_per_s / float(details["bytes_per_token_read"])
            details.update(sol=rate / limit, limit_tokens_per_s=limit)
        return Measured(rate, details)
    return read


def metric_lines(folder: pathlib.Path) -> list[dict]:
    with open(folder / "out" / "metrics.jsonl", encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if "loss" in line]


def label_rate(_finished: Finished, folder: pathlib.Path) -> Measured:
    """Label tokens a second of the counted steps of a `tessera train` run."""
    steps = metric_lines(folder)[WARMUP_STEPS:]
    if not steps:
        raise ValueError("metrics.jsonl holds no counted step")
    label_tokens, seconds = sum(step["label_tokens"] for step in steps), [step["step_s"] for step in steps]
    details = {"step_s": seconds, "label_tokens": label_tokens, "tokens": sum(step["tokens"] for step in steps),
               "sol": statistics.median(step["sol"] for step in steps), "losses": [step["loss"] for step in steps]}
    return Measured(label_tokens / sum(seconds), details)


def seconds_watched(finished: Finished, _folder: pathlib.Path) -> Measured:
    if finished.watched_s is None:
        raise ValueError("no optimizer step was seen")
    return Measured(finished.watched_s, {})
