"""A rank's share of a stream of documents through `datasets` and `tokenizers`: concatenated and cut into sequences."""
import argparse
import glob
import json
import os
import resource
import sys
import time


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--files", required=True, help="a pattern")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--sequence-len", type=int, required=True)
    parser.add_argument("--sequences", type=int, required=True)
    parser.add_argument("--shuffled", type=int, required=True, help="documents that are shuffled together")
    return parser.parse_args()


options = parse()
os.environ["TOKENIZERS_PARALLELISM"] = "true"
os.environ["RAYON_NUM_THREADS"] = str(options.threads)

import datasets  # noqa: E402
import datasets.distributed  # noqa: E402
import numpy  # noqa: E402
import tokenizers  # noqa: E402

datasets.utils.logging.set_verbosity_error()
_BATCH = 1000


class Stream:
    def __init__(self, tokenizer: tokenizers.Tokenizer, end: int) -> None:
        self.tokenizer, self.end = tokenizer, end
        rows = datasets.load_dataset("json", data_files=sorted(glob.glob(options.files)), split="train", streaming=True)
        rows = rows.shuffle(seed=42, buffer_size=options.shuffled)
        self.rows = datasets.distributed.split_dataset_by_node(rows, rank=options.rank, world_size=options.ranks)

    def sequences(self):
        """Of one pass."""
        ids, length = numpy.empty(0, dtype=numpy.int64), options.sequence_len
        for batch in self.rows.iter(batch_size=_BATCH):
            made = self.tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
            ids = numpy.concatenate([ids, *(numpy.array(one.ids + [self.end]) for one in made)])
            whole = len(ids) // length
            yield from ids[:whole * length].reshape(whole, length)
            ids = ids[whole * length:]


def main() -> None:
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(options.model, "tokenizer.json"))
    with open(os.path.join(options.model, "tokenizer_config.json"), encoding="utf-8") as file:
        end = tokenizer.token_to_id(json.load(file)["eos_token"])
    print("ready", flush=True)
    sys.stdin.readline()  # until all ranks are
    begin = time.perf_counter()
    stream = Stream(tokenizer, end)
    sequences = stream.sequences()
    next(sequences)
    first_s = time.perf_counter() - begin
    places = {}
    begin, due = time.perf_counter(), 1
    for i in range(1, options.sequences):
        next(sequences)
        if i == due or i + 1 == options.sequences:
            places[i + 1] = stream.rows.state_dict()
            due *= 4
    seconds = time.perf_counter() - begin
    resumes = []
    for sequence, place in places.items():
        begin = time.perf_counter()
        again = Stream(tokenizer, end)
        again.rows.load_state_dict(place)
        next(again.sequences())
        resumes.append({"sequences": sequence, "seconds": time.perf_counter() - begin})
    print(json.dumps({"tokens": (options.sequences - 1) * options.sequence_len, "seconds": seconds, "first_s": first_s,
                      "resumes": resumes, "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


main()
