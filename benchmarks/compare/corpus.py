"""Text to measure with: documents of random words, from a seed."""
import json
import pathlib
import random

from compare.paths import ROOT

_PAGES = sorted((ROOT / "docs").glob("architecture-*.md"))


def make_file(path: pathlib.Path, gigabytes: float, words_a_document: int, seed: int = 1) -> int:
    """JSON Lines of documents of about that many words; returns how many."""
    rng = random.Random(seed)
    words = [word for page in _PAGES for word in page.read_text(encoding="utf-8").split()]
    size = int(gigabytes * 1e9)
    written = documents = 0
    with open(path, "w", encoding="utf-8") as file:
        while written < size:
            text = " ".join(rng.choices(words, k=max(1, int(rng.gauss(words_a_document, words_a_document / 3)))))
            line = json.dumps({"text": text}, ensure_ascii=False) + "\n"
            file.write(line)
            written += len(line.encode())
            documents += 1
    return documents
