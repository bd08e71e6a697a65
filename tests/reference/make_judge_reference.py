#!/usr/bin/env python3
"""Makes tests/reference/data/judge/: what FastChat 0.2.36 asks, writes and counts for a few questions of our own.

question.jsonl, judge_prompts.jsonl and reference_answer/ are written here. FastChat's gen_api_answer makes model_answer/
and its gen_judgment model_judgment/, with a model and a judge that say what this script says; expected.json holds their
requests with the replies, the tables of show_result, and the counts of compute_agreement on votes/. FastChat's package of
models, which needs much and does nothing here, is left out.
"""
import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import types
from unittest import mock

from fastchat.conversation import get_conv_template

models = types.ModuleType("fastchat.model.model_adapter")
models.get_conversation_template = lambda name: get_conv_template("chatgpt")
models.OPENAI_MODEL_LIST = ("gpt-4", "sparrow", "wren", "owl")
models.ANTHROPIC_MODEL_LIST = ()
sys.modules["fastchat.model"] = mock.MagicMock(get_conversation_template=models.get_conversation_template)
sys.modules["fastchat.model.model_adapter"] = models
for name in ("openai", "anthropic", "torch"):
    sys.modules[name] = mock.MagicMock()

from fastchat.llm_judge import common, compute_agreement, gen_api_answer, gen_judgment, show_result

# Rows that are made again must not differ.
common.time = gen_api_answer.time = types.SimpleNamespace(time=lambda: 1700000000.5)
gen_api_answer.shortuuid = types.SimpleNamespace(uuid=lambda: "2" * 22)

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "judge")
MODELS = ["owl", "sparrow", "wren"]
QUESTIONS = [
    {"question_id": 7, "category": "writing", "turns": ["Name a colour.", "Name {another} one."]},
    {"question_id": 8, "category": "math", "turns": ["What is 2 + 3?", "And 2 - 3?"]},
    {"question_id": 9, "category": "stem", "turns": ["What is air made of?", "How much of it is oxygen?"]},
    {"question_id": 10, "category": "coding", "turns": ["Print \"ä\" in C."]},
    {"question_id": 11, "category": "manners", "turns": ["Greet me.", "Say goodbye."]},
]
REFERENCES = {8: ["5", "-1"], 10: ["puts(\"ä\");"]}
# A judge's words, with ratings of every form.
RATINGS = ["Good. [[8]]", "[[7.5]] and later [[2]]", "Rating: [6]", "No rating.", "[[ 3 ]] [4.]", "[[[9]]]", "[1] [[10]]",
           "[[x]] [[-5]]", "[[5", "", "{\"a\": [1, 2]} [[3.25]]"]
WINNERS = ["[[A]]", "[[B]]", "[[C]]", "I say [[B]], no, [[A]].", "[[a]]", "[[C]] or [[B]]", "[[A]]"]
TWO_RATINGS = ["[[7,8]]", "[[8, 7.95]]", "[9,2]", "[[1,2,3]]", "[[5]]", "[[10,1]] [[1,10]]", "[[5,5.1]]", "no"]


def write_rows(name, rows):
    os.makedirs(os.path.dirname(os.path.join(FOLDER, name)), exist_ok=True)
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def make_prompts():
    """Prompts of our own under FastChat's names."""
    rows = []
    for is_pair in (False, True):
        for is_math in (False, True):
            for is_second in (False, True):
                name = ("pair-" if is_pair else "single-") + ("math-v1" if is_math else "v2" if is_pair else "v1")
                turns = ["_1", "_2"] if is_second else [""]
                answers = ["answer_a", "answer_b"] if is_pair else ["answer"]
                parts = [f"Q: {{question{turn}}}\n" + "".join(f"{answer}: {{{answer}{turn}}}\n" for answer in answers)
                         for turn in turns]
                if is_math:
                    parts += [f"Known: {{ref_answer_{i + 1}}}\n" for i in range(len(turns))]
                rows.append({
                    "name": name + ("-multi-turn" if is_second else ""),
                    "type": "pairwise" if is_pair else "single",
                    "system_prompt": "" if name == "single-v1" else f"You judge by {name}.",
                    "prompt_template": "".join(parts) + "Write {{}} around it.",
                    "description": "",
                    "category": "math" if is_math else "general",
                    "output_format": "[[A]]" if is_pair else "[[rating]]",
                })
    write_rows("judge_prompts.jsonl", rows)


class Replies:
    """Stands for a model: says the words of a list in turn, and keeps what it was asked."""

    def __init__(self):
        self.requests, self.words = [], []

    def __call__(self, model, conv, temperature, max_tokens, api_dict=None):
        messages = conv.to_openai_api_messages()
        reply = self.words[len(self.requests) % len(self.words)]
        self.requests.append({"model": model, "messages": messages, "temperature": temperature,
                              "max_tokens": max_tokens, "reply": reply})
        return reply


def make_answers(replies):
    gen_api_answer.chat_completion_openai = replies
    gen_api_answer.args = argparse.Namespace(force_temperature=None)
    for number, model in enumerate(MODELS):
        file = os.path.join(FOLDER, "model_answer", model + ".jsonl")
        replies.words = [f"{model} says {word}" for word in ("so", "ö {x}", "[[A]]", "no\nmore", "yes")]
        for question in reversed(QUESTIONS):
            gen_api_answer.get_answer(question, model, 1 + number % 2, 1024, file)
        gen_api_answer.reorg_answer_file(file)


def make_judgments(replies):
    common.chat_completion_openai = replies
    prompts = common.load_judge_prompts(os.path.join(FOLDER, "judge_prompts.jsonl"))
    answers = common.load_model_answers(os.path.join(FOLDER, "model_answer"))
    references = common.load_model_answers(os.path.join(FOLDER, "reference_answer"))
    default = [q for q in QUESTIONS if q["category"] not in common.NEED_REF_CATS]
    math = [q for q in QUESTIONS if q["category"] in common.NEED_REF_CATS]

    def play(judges, make_match, play_match, file, baseline):
        for suffix, is_second in (("", False), ("-mt", True)):
            for questions, kind, given in ((default, "default", None), (math, "math", references)):
                for match in make_match(questions, MODELS, answers, judges[kind + suffix], baseline, given, is_second):
                    play_match(match, os.path.join(FOLDER, "model_judgment", file))

    replies.words = RATINGS
    play(gen_judgment.make_judge_single("gpt-4", prompts), gen_judgment.make_match_single, common.play_a_match_single,
         "gpt-4_single.jsonl", None)
    replies.words = WINNERS
    play(gen_judgment.make_judge_pairwise("gpt-4", prompts), gen_judgment.make_match_all_pairs,
         common.play_a_match_pair, "gpt-4_pair.jsonl", None)


def tables(mode, **keys):
    """The frames that show_result prints, as rows."""
    frames = []
    show_result.print = lambda *values: frames.extend(value for value in values if hasattr(value, "reset_index"))
    is_single = mode == "single"
    file = os.path.join(FOLDER, "model_judgment", f"gpt-4_{'single' if is_single else 'pair'}.jsonl")
    args = argparse.Namespace(**{"bench_name": "mt_bench", "judge_model": "gpt-4", "model_list": None,
                                 "baseline_model": None, "input_file": file, **keys})
    (show_result.display_result_single if is_single else show_result.display_result_pairwise)(args)
    return [json.loads(frame.reset_index().to_json(orient="records", double_precision=15)) for frame in frames]


def make_votes():
    """Votes of people and of gpt-4, as FastChat's files have them, on answers of two models in either order."""
    def vote(question, one, two, winner, judge, turn):
        return {"question_id": question, "model_a": one, "model_b": two, "winner": winner, "judge": judge, "turn": turn}
    people = [
        vote(7, "owl", "wren", "model_a", "expert_1", 1), vote(7, "wren", "owl", "model_b", "expert_2", 1),
        vote(7, "wren", "owl", "tie", "expert_3", 1), vote(8, "owl", "wren", "model_b", "expert_1", 1),
        vote(8, "owl", "wren", "tie (bothbad)", "expert_4", 1), vote(9, "wren", "owl", "model_a", "author_1", 1),
        vote(7, "owl", "wren", "model_b", "expert_1", 2), vote(9, "wren", "owl", "model_a", "expert_2", 2),
    ]
    gpt4 = [
        vote(7, "owl", "wren", "model_a", ["gpt-4", "pair-v2"], 1),
        vote(8, "wren", "owl", "tie (inconsistent)", ["gpt-4", "pair-math-v1"], 1),
        vote(7, "wren", "owl", "model_a", ["gpt-4", "pair-v2-multi-turn"], 2),
        vote(9, "owl", "wren", "model_a", ["gpt-4", "pair-v2-multi-turn"], 2),
    ]
    os.makedirs(os.path.join(FOLDER, "votes"))
    for name, rows in (("human.json", people), ("gpt4.json", gpt4)):
        with open(os.path.join(FOLDER, "votes", name), "w", encoding="utf-8") as file:
            json.dump(rows, file)
            file.write("\n")
    # The judgements as votes, which FastChat's own gpt4 file was made of.
    made = []
    with open(os.path.join(FOLDER, "model_judgment/gpt-4_pair.jsonl"), encoding="utf-8") as file:
        for row in map(json.loads, file):
            games = (row["g1_winner"], row["g2_winner"])
            if "error" not in games:
                winner = {"model_1": "model_a", "model_2": "model_b"}.get(games[0], games[0])
                made.append(vote(row["question_id"], row["model_1"], row["model_2"],
                                 winner if games[0] == games[1] else "tie (inconsistent)", row["judge"], row["turn"]))
    counts = {}
    for name, votes, judges in (("gpt4_human", [people, gpt4], ("gpt4-pair", "human")),
                                ("human_human", [people, gpt4], ("human", "human")),
                                ("judgments_human", [people, made], ("gpt4-pair", "human"))):
        data = compute_agreement.get_mt_bench_votes_data(votes)
        counts[name] = [compute_agreement.get_mt_bench_agreement(data[turn], *judges, ban=ban)
                        for turn in (0, 1) for ban in ([], ["tie"])]
    return counts


def two_ratings():
    """Who wins by words that rate both answers."""
    prompt = {"system_prompt": "", "prompt_template": "", "output_format": "[[rating_a,rating_b]]"}
    answer = {"choices": [{"turns": [""]}]}
    winners = []
    for words in TWO_RATINGS:
        common.chat_completion_openai = lambda *_, words=words, **__: words
        winners.append([words, common.run_judge_pair(QUESTIONS[0], answer, answer, common.Judge("gpt-4", prompt), None)[0]])
    return winners


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    write_rows("question.jsonl", QUESTIONS)
    write_rows("reference_answer/gpt-4.jsonl", [
        {"question_id": question, "answer_id": str(question), "model_id": "gpt-4",
         "choices": [{"index": 0, "turns": turns}], "tstamp": 0} for question, turns in REFERENCES.items()])
    make_prompts()
    answering, judging = Replies(), Replies()
    with contextlib.redirect_stdout(io.StringIO()):
        make_answers(answering)
        make_judgments(judging)
        expected = {
            "answer_requests": answering.requests,
            "judge_requests": judging.requests,
            "single": tables("single"),
            "single_of_two": tables("single", model_list=["owl", "wren"]),
            "pairwise_all": tables("pairwise-all"),
            "pairwise_baseline": tables("pairwise-baseline", baseline_model="sparrow"),
            "agreement": make_votes(),
            "two_ratings": two_ratings(),
        }
    with open(os.path.join(FOLDER, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file)
        file.write("\n")


main()
