#!/usr/bin/env python3
"""Makes tests/reference/data/text_metrics.json: what lm-evaluation-harness 0.4.13 (with sacrebleu 2.6.0 and
scikit-learn) makes of pairs of texts and of pairs of choices: bleu, chrf, chrf++, ter, f1 and mcc with their standard
errors by 200 resamples, 100 for texts.
"""
import json
import os
import random

from reference_common import DATA

os.environ["DISABLE_MULTIPROC"] = "1"
from lm_eval.api import metrics  # noqa: E402

SENTENCES = [
    "The cat sat on the mat.", "A quick brown fox, 3.14 times as fast, jumps over 1,000 lazy dogs!",
    "\"Quoted\" &amp; &lt;escaped&gt; text - with a dash, and well-known words.", "Él comió 2-3 piñatas… ¿por qué?",
    "今日は良い天気ですね。", "x", "", "  spaces   everywhere ", "line one\nline two-\nsplit (in parentheses) [and more]",
    "Prices rose by 5.5%, from $1,200.50 to $1,266.53.", "<skipped> e.g. this one's (odd): a/b; c_d? #tag @you",
]


def changed(text, rng):
    words = text.split(" ")
    for _ in range(rng.randint(0, 3)):
        if words and rng.random() < 0.5:
            words.pop(rng.randrange(len(words)))
        else:
            words.insert(rng.randint(0, len(words)), rng.choice(rng.choice(SENTENCES).split(" ") or ["a"]))
    return " ".join(words)


def shuffled(text, rng):
    """The words of the text, of which some runs lie elsewhere: ter counts a shift as one edit."""
    words = text.split(" ")
    for _ in range(rng.randint(1, 3)):
        begin = rng.randrange(len(words))
        run = words[begin:begin + rng.randint(1, 12)]
        del words[begin:begin + len(run)]
        words[(place := rng.randint(0, len(words))):place] = run
    return changed(" ".join(words), rng)


def main():
    rng = random.Random(7)
    texts = []
    for i in range(60):
        reference = SENTENCES[i % len(SENTENCES)]
        if i % 4 == 3:
            reference += " " + rng.choice(SENTENCES)
        texts.append((reference, changed(reference, rng)))
    long = random.Random(8)
    for count in (12, 30, 70):
        reference = " ".join(long.choice("the a cat Dog sat on mat , and then one two".split()) for _ in range(count))
        texts.append((reference, shuffled(reference, long)))
        texts.append((reference, shuffled(reference, long) if count < 70 else reference[:40]))
    choices = [(rng.randrange(2), rng.randrange(2)) for _ in range(40)]
    choices += [(one, one) for one in (0, 1, 1)]
    classes = [(rng.randrange(4), rng.randrange(4)) for _ in range(30)] + [(i % 4, i % 4) for i in range(20)]
    result = {"texts": texts, "choices": choices, "classes": classes, "scores": {}}
    for name, function, items in (("bleu", metrics.bleu, texts), ("chrf", metrics.chrf, texts),
                                  ("chrf++", metrics.chrfpp, texts), ("ter", metrics.ter, texts),
                                  ("f1", metrics.f1_score, choices),
                                  ("mcc", metrics.matthews_corrcoef, choices),
                                  ("mcc of classes", metrics.matthews_corrcoef, classes)):
        result["scores"][name] = [float(function(items)),
                                  float(metrics.stderr_for_metric(function, bootstrap_iters=100 if items is texts else 200)(items))]
        if items is texts:
            result["each " + name] = [float(function([item])) for item in texts]
    with open(os.path.join(DATA, "text_metrics.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, ensure_ascii=False, indent=0)
        file.write("\n")
    print({name: score for name, score in result["scores"].items()})


if __name__ == "__main__":
    main()
