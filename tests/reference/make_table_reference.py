#!/usr/bin/env python3
"""Makes tests/reference/data/tables: the same rows as JSON Lines, parquet and arrow files, and as a folder that
`save_to_disk` writes. tests/data/table_reader_test.cpp reads them.

Needs: pip install pyarrow datasets
"""
import json
import pathlib
import shutil

import datasets
import pyarrow
import pyarrow.feather
import pyarrow.parquet

OUT = pathlib.Path(__file__).resolve().parent / "data" / "tables"


def rows():
    for i in range(50):
        yield {
            "messages": [{"role": "user", "content": f"Ask \"{i}\"?\n"},
                         {"role": "assistant", "content": "é 漢 \U0001F600" * (i % 3)}],
            "input_ids": list(range(i % 5)),
            "text": None if i % 7 == 0 else f"row {i}\t\\",
            "label": i % 2 == 0,
            "weight": i / 4,
            "count": i * 10**12,
        }


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    all_rows = list(rows())
    (OUT / "rows.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in all_rows))
    table = pyarrow.Table.from_pylist(all_rows)
    pyarrow.parquet.write_table(table, OUT / "rows.parquet", row_group_size=20, compression="zstd")
    pyarrow.parquet.write_table(table, OUT / "snappy.parquet", compression="snappy", data_page_version="2.0")
    pyarrow.feather.write_feather(table, OUT / "rows.arrow", compression="lz4", chunksize=17)
    with pyarrow.ipc.new_stream(OUT / "stream.arrow", table.schema) as stream:
        for batch in table.to_batches(max_chunksize=13):
            stream.write_batch(batch)
    # Kinds of columns that JSON has no word for.
    others = pyarrow.table({
        "day": pyarrow.array([20000, None], pyarrow.date32()),
        "word": pyarrow.array(["a", "b"]).dictionary_encode(),
        "half": pyarrow.array([1.5, float("nan")], pyarrow.float16()),
        "pairs": pyarrow.array([[("k", 1)], []], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
        "image": pyarrow.array([b"\x00\xff", None]),
        "large": pyarrow.array([["x"], None], pyarrow.large_list(pyarrow.large_string())),
    })
    pyarrow.parquet.write_table(others, OUT / "others.parquet")
    saved = datasets.DatasetDict({"train": datasets.Dataset.from_list(all_rows[:40]),
                                  "test": datasets.Dataset.from_list(all_rows[40:])})
    saved.save_to_disk(str(OUT / "saved"), num_shards={"train": 2, "test": 1})


main()
