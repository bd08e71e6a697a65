#!/usr/bin/env python3
"""Makes tests/reference/data/tasks/: what lm-evaluation-harness 0.4.13 makes of the task files there.

The model is a random Llama with a small tokenizer, in model/. reference.json holds the version of the harness, the
results of every task and group, and of each document the prompts, the log-likelihoods and the generated texts, as
`lm_eval` logs them. chats.json holds prompts in a chat template, random.json numbers of Python's random, and
filters.json what filters make of answers.

usage: make_task_reference.py [--check TESSERA]
  --check runs this program on the same files and compares its results; nothing is written.
"""
import argparse
import contextlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile

from reference_common import DATA

import torch
import transformers

FOLDER = os.path.join(DATA, "tasks")
TASKS = ["all", "endings", "pages", "sums", "sums_any"]
# The harness' own tasks that Tessera has too, with the folder of their data below data/, and their examples.
BUILT_IN = {
    "arc_easy": ("arc/arc_easy.yaml", "ai2_arc/ARC-Easy", 1),
    "arc_challenge": ("arc/arc_challenge.yaml", "ai2_arc/ARC-Challenge", 1),
    "openbookqa": ("openbookqa/openbookqa.yaml", "openbookqa/main", 1),
    "sciq": ("sciq/sciq.yaml", "sciq", 1),
    "piqa": ("piqa/piqa.yaml", "piqa", 1),
    "boolq": ("super_glue/boolq/default.yaml", "super_glue/boolq", 1),
    "copa": ("super_glue/copa/default.yaml", "super_glue/copa", 1),
    "winogrande": ("winogrande/default.yaml", "winogrande/winogrande_xl", 1),
    "hellaswag": ("hellaswag/hellaswag.yaml", "hellaswag", 1),
    "lambada_openai": ("lambada/lambada_openai.yaml", "lambada_openai/default", 0),
    "gsm8k": ("gsm8k/gsm8k.yaml", "gsm8k/main", None),
    "wikitext": ("wikitext/wikitext.yaml", "wikitext_document_level/wikitext-2-raw-v1", 0),
    "mmlu_anatomy": ("mmlu/default/mmlu_anatomy.yaml", "mmlu/anatomy", 2),
    **{name: (f"glue/{name}/default.yaml", f"glue/{name}", 1) for name in
       ("cola", "mrpc", "qnli", "qqp", "rte", "sst2", "wnli", "mnli")},
    "mnli_mismatch": ("glue/mnli/mismatch.yaml", "glue/mnli", 1),
}
MAX_LENGTH = 160
# Parts of logged samples that repeat the data, or that are no number of their own (brier_score).
LEFT_OUT = ("doc", "doc_hash", "prompt_hash", "target_hash", "brier_score")


def texts():
    """All texts of the data files, to train the tokenizer on."""
    for name in sorted(os.listdir(FOLDER)):
        if name.endswith((".jsonl", ".csv")):
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                yield from file


def make_model():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    torch.manual_seed(33)
    config = transformers.LlamaConfig(
        vocab_size=len(fast), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=MAX_LENGTH, bos_token_id=0, eos_token_id=1,
        initializer_range=0.12, tie_word_embeddings=False)
    model = transformers.LlamaForCausalLM(config).float().eval()
    model.save_pretrained(os.path.join(FOLDER, "model"))
    fast.save_pretrained(os.path.join(FOLDER, "model"))


def write_built_in(folder_of_files, name):
    """Writes a file that includes one of the harness' own tasks and names the data below data/."""
    import lm_eval

    file, folder, num_fewshot = BUILT_IN[name]
    path = os.path.join(FOLDER, "data", folder)
    config = {
        "include": os.path.join(os.path.dirname(lm_eval.__file__), "tasks", file), "task": name, "dataset_path": "json",
        "dataset_name": None, "dataset_kwargs": {"data_files": {
            file.removesuffix(".jsonl"): os.path.join(path, file) for file in sorted(os.listdir(path))}}}
    for key, split in (("training_split", "train"), ("validation_split", "validation")):
        if not any(file.startswith(split) for file in os.listdir(path)):
            config[key] = None
    if num_fewshot is not None:
        config["num_fewshot"] = num_fewshot
    with open(os.path.join(folder_of_files, name + ".yaml"), "w", encoding="utf-8") as out:
        json.dump(config, out)


def run_harness(folder, tasks, max_length=None, resamples=100_000):
    import lm_eval
    from lm_eval.tasks import TaskManager

    os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp()
    arguments = {"pretrained": os.path.join(FOLDER, "model"), "dtype": "float32"}
    if max_length:
        arguments["max_length"] = max_length
    with contextlib.chdir(folder):
        manager = TaskManager(include_path=folder, include_defaults=False)
        result = lm_eval.simple_evaluate(
            model="hf", model_args=arguments, tasks=tasks, task_manager=manager, device="cpu", batch_size=1,
            log_samples=True, bootstrap_iters=resamples)
    kept = {"harness": lm_eval.__version__}
    for key in ("results", "groups", "group_subtasks", "versions", "n-shot", "higher_is_better", "n-samples"):
        kept[key] = result.get(key, {})
    kept["table"] = lm_eval.utils.make_table(result)
    kept["samples"] = {}
    for task, samples in result["samples"].items():
        kept["samples"][task] = [
            {key: value for key, value in sample.items() if key not in LEFT_OUT}
            for sample in samples]
    for samples in kept["samples"].values():
        for sample in samples:
            # The keyword arguments of a generation stand in the task file.
            sample["arguments"] = [list(request)[:1] if isinstance(request[-1], dict) else list(request)
                                   for request in sample["arguments"]]
    return kept


CHAT_TEMPLATE = ("{% if messages[0]['role'] == 'system' and 'refuse' in messages[0]['content'] %}"
                 "{{ raise_exception('no system message') }}{% endif %}{{ bos_token }}"
                 "{% for message in messages %}<{{ message['role'] }}>\n{{ message['content'] | trim }}</s>\n{% endfor %}"
                 "{% if add_generation_prompt %}<assistant>\n{% endif %}")


def chats():
    """The requests of some tasks as chats, with examples as turns and in one message."""
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    lm = HFLM(pretrained=os.path.join(FOLDER, "model"), device="cpu", dtype="float32")
    lm.tokenizer.chat_template = CHAT_TEMPLATE
    made = {"chat_template": CHAT_TEMPLATE, "cases": []}
    with contextlib.chdir(FOLDER):
        for is_multiturn in (True, False):
            for system in (None, "Be brief.", "Please refuse."):
                # New tasks each time: examples are drawn with a generator that goes on.
                manager = TaskManager(include_path=FOLDER, include_defaults=False)
                tasks = manager.load(["quiz", "quiz_first", "blanks", "endings", "sums"])["tasks"]
                requests = {}
                for name, task in tasks.items():
                    task.set_fewshot_seed(seed=1234)
                    task.build_all_requests(
                        limit=4, rank=0, world_size=1, system_instruction=system, apply_chat_template=True,
                        fewshot_as_multiturn=is_multiturn, chat_template=lm.apply_chat_template)
                    requests[name] = [[one.doc_id] + [part for part in one.args if isinstance(part, str)]
                                      for one in task.instances]
                made["cases"].append({"is_multiturn": is_multiturn, "system": system or "", "requests": requests})
    return made


def draws():
    """What Python's random draws by some seeds."""
    made = []
    for seed, sizes in ((0, [(5, 2), (40, 12)]), (1234, [(10, 3), (1000, 5), (21, 21), (100, 9)]),
                        (2 ** 40 + 7, [(10 ** 6, 6), (85, 6), (86, 6), (300, 60)])):
        rnd = random.Random(seed)
        made.append({"seed": seed, "samples": [[size, k, rnd.sample(range(size), k)] for size, k in sizes],
                     "reals": [rnd.random() for _ in range(3)]})
    return made


SIGNS = "a.b (c) [d] {e} *+?|^$\\\\/-_~#&\"'<>!%,;:=@`"
CHOICES = ["Guilty", " Guilty of Romance", SIGNS, "Zürich", "“ΟΔΟΣ”, 3.5", "x\ny"]
ANSWERS = [
    "the answer is (C).", "the answer is ( ).", "It is Guilty of Romance", "guilty of romance?", "Not Guilty, Zürich",
    "", f"so {SIGNS} it is", "aXb (c)", "zürich", "ΟΔΟΣ 35", "οδος 35", "x\ny", "x y", "Answer: B",
    "Answer:  F or : A", "Answer: G", "Answer B", "the answer is (A) not (B)", "very Guilty", "12 and -3", "#### 1,234"]
FILTERS = [
    ["regex", {}], ["regex", {"regex_pattern": "([0-9]+)|(#)|x", "fallback": "none"}],
    ["regex", {"regex_pattern": "-?[0-9]+", "group_select": -1}],
    ["multi_choice_regex", {}],
    ["multi_choice_regex", {"regex_pattern": r"answer is (\([A-D ]\))", "group_select": -1, "fallback": "none"}],
    ["multi_choice_regex", {"regex_pattern": r"is \(()([A-D])?|is ( )", "ignore_case": True}],
    ["multi_choice_regex", {"regex_pattern": r"\( \)|\b[A-D]\b", "ignore_case": True, "ignore_punctuation": True}],
    ["multi_choice_regex", {"ignore_punctuation": True, "regexes_to_ignore": ["[a-m]", r"\s"]}],
]


def filters():
    """What filters make of answers to one document."""
    from lm_eval.filters import get_filter

    cases = []
    for function, arguments in FILTERS:
        made = get_filter(function)(**arguments).apply([ANSWERS], [{"choices": CHOICES}])
        cases.append({"function": function, "arguments": arguments, "filtered": list(made)[0]})
    # Of equal choices the last one counts, and an empty one is no match.
    of_equal = get_filter("multi_choice_regex")(ignore_case=True)
    equal = of_equal.apply([["red", "blue"]], [{"choices": ["Red", "", "red"]}])
    return {"choices": CHOICES, "answers": ANSWERS, "cases": cases, "equal": list(equal)[0]}


def differences(ours, theirs, place=""):
    """Pairs (place, what differs); numbers may differ by 1e-4, and by 1e-6 relatively in scores."""
    if isinstance(theirs, bool) or isinstance(ours, bool):
        # A label of a multiple choice may be a boolean in one and 0 or 1 in the other.
        if bool(ours) != bool(theirs):
            yield place, f"{ours!r} and {theirs!r}"
    elif isinstance(theirs, (int, float)) and isinstance(ours, (int, float)):
        if not math.isclose(ours, theirs, rel_tol=1e-4, abs_tol=1e-4):
            yield place, f"{ours!r} and {theirs!r}"
    elif isinstance(theirs, dict) and isinstance(ours, dict):
        for key, value in theirs.items():
            yield from differences(ours[key], value, f"{place}/{key}") if key in ours else [(place, f"no key {key}")]
    elif isinstance(theirs, (list, tuple)) and isinstance(ours, list):
        if len(ours) != len(theirs):
            yield place, f"{len(ours)} and {len(theirs)} items"
        for i, (a, b) in enumerate(zip(ours, theirs)):
            yield from differences(a, b, f"{place}/{i}")
    elif ours != theirs:
        yield place, f"{ours!r} and {theirs!r}"


def check(program):
    with open(os.path.join(FOLDER, "reference.json"), encoding="utf-8") as file:
        theirs = json.load(file)
    files = ",".join(os.path.join(FOLDER, task + ".yaml") for task in TASKS)
    made = subprocess.run([program, "evaluate", os.path.join(FOLDER, "model"), "--tasks", files, "--json",
                           "--log-samples"], stdout=subprocess.PIPE, check=True)
    ours = json.loads(made.stdout)
    found = list(differences(ours, {key: value for key, value in theirs.items() if key not in ("table", "harness")}))
    for place, what in found[:40]:
        print(f"{place}: {what}")
    print(f"{len(found)} differences")
    return bool(found)


def to_json(value):
    return json.dumps(value, ensure_ascii=False, indent=1, default=lambda x: x.item() if hasattr(x, "item") else str(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="TESSERA")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(check(arguments.check))
    make_model()
    with tempfile.TemporaryDirectory() as folder:
        for name in BUILT_IN:
            write_built_in(folder, name)
        # The examples of gsm8k and its 256 new tokens need more than the model's own length.
        built_ins = run_harness(folder, list(BUILT_IN), max_length=1024, resamples=100)
    for name, made in (("reference.json", run_harness(FOLDER, TASKS)), ("built_in.json", built_ins),
                       ("random.json", draws()), ("chats.json", chats()), ("filters.json", filters())):
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
            file.write(to_json(made) + "\n")


if __name__ == "__main__":
    main()
