"""The alpaca format as Tessera's recipes have it: prompt and answer, tokenised apart, the answer alone trained."""
import json

_WITH_INPUT = ("Below is an instruction that describes a task, paired with an input that provides further context. "
               "Write a response that appropriately completes the request.")
_WITHOUT_INPUT = ("Below is an instruction that describes a task. Write a response that appropriately completes the "
                  "request.")


def read_records(path: str) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def prompt_text(record: dict) -> str:
    given = record.get("input") or ""
    text = (_WITH_INPUT if given else _WITHOUT_INPUT) + "\n\n### Instruction:\n" + record["instruction"] + "\n\n"
    if given:
        text += "### Input:\n" + given + "\n\n"
    return text + "### Response:\n"
