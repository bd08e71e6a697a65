#!/usr/bin/env python3
"""Renders chat templates and single constructs with jinja2, as Transformers sets it up, and stores what came out.

Needs the packages jinja2 and transformers. Writes tests/reference/data/chat_template/*.json, which
tests/text/chat_template_reference_test.cpp holds the interpreter against. The templates are written here, in the
formats of well-known model families.
"""
import datetime
import json
import pathlib

from transformers.utils import chat_template_utils as hf

from template_constructs import CONSTRUCTS
from template_families import CONVERSATIONS, FAMILIES, OPTIONS

HERE = pathlib.Path(__file__).parent
CLOCK = datetime.datetime(2025, 3, 9, 14, 5, 6)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return CLOCK


def render(source, variables):
    """The text, or None where jinja2 refuses to compile or to render."""
    try:
        return hf._compile_jinja_template(source).render(**variables)
    except Exception:  # any refusal counts: the interpreter must refuse too
        return None


def families():
    cases = []
    for family, source in FAMILIES.items():
        for name, conversation in CONVERSATIONS.items():
            for prompt in (False, True):
                variables = dict(
                    OPTIONS.get(family, {}),
                    messages=conversation["messages"],
                    tools=conversation.get("tools"),
                    documents=None,
                    add_generation_prompt=prompt,
                    bos_token="<s>",
                    eos_token="</s>",
                )
                cases.append([family, name, prompt, render(source, variables)])
    return {"templates": FAMILIES, "options": OPTIONS, "conversations": CONVERSATIONS, "cases": cases}


def constructs():
    base = {"messages": CONVERSATIONS["tools"]["messages"], "tools": CONVERSATIONS["tools"]["tools"]}
    fixed = dict(base, documents=None, add_generation_prompt=False, bos_token="<s>", eos_token="</s>")
    return {**base, "cases": [[source, render(source, fixed)] for source in CONSTRUCTS]}


def main():
    hf.datetime = FixedClock
    folder = HERE / "data" / "chat_template"
    folder.mkdir(parents=True, exist_ok=True)
    clock = int(CLOCK.replace(tzinfo=datetime.timezone.utc).timestamp())
    for name, content in {"families": families(), "constructs": constructs()}.items():
        content["clock"] = clock
        refused = sum(case[-1] is None for case in content["cases"])
        print(f"{name}: {len(content['cases'])} cases, {refused} of them refused")
        text = json.dumps(content, ensure_ascii=False, indent=1)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
