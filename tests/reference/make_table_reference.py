#!/usr/bin/env python3
"""Makes tests/reference/data/tables: the same rows as JSON Lines, parquet and arrow files, and as a folder that
`save_to_disk` writes. tests/data/table_reader_test.cpp reads them.

Needs: pip install pyarrow datasets
"""
import decimal
import functools
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


def rows_with_structs():
    """Rows whose objects have different keys. A struct column has all of them in every row."""
    yield {"messages": [{"role": "user", "content": "Weather?"},
                        {"role": "assistant", "content": None, "tool_calls": [
                            {"type": "function", "function": {"name": "weather", "arguments": {"city": "Bern"}}}]}],
           "tools": [{"name": "weather", "parameters": {"city": {"type": "string", "enum": ["Bern", None]}}},
                     {"name": "clock", "parameters": {"zone": {"type": "integer", "minimum": 0}}}],
           "note": None}
    yield {"messages": [{"role": "user", "content": "Time?"},
                        {"role": "assistant", "content": "", "tool_calls": [
                            {"type": "function", "function": {"name": "clock", "arguments": {"zone": 2}}},
                            {"type": "function", "function": {"name": "now", "arguments": {}}}]}],
           "tools": [], "note": "x"}


def without_null_members(value, is_row=True):
    if isinstance(value, list):
        return [without_null_members(item, False) for item in value]
    if isinstance(value, dict):
        return {key: without_null_members(item, False) for key, item in value.items() if is_row or item is not None}
    return value


def write_arrow(name, columns, **names):
    table = pyarrow.table(columns, **names)
    with pyarrow.ipc.new_file(OUT / f"{name}.arrow", table.schema) as file:
        file.write(table)


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
    # Every other type of column.
    write_arrow("values", {
        "i8": pyarrow.array([-128, 127], pyarrow.int8()),
        "i64": pyarrow.array([-2**63, 5], pyarrow.int64()),
        "u64": pyarrow.array([2**64 - 1, 0], pyarrow.uint64()),
        "f32": pyarrow.array([0.1, float("inf")], pyarrow.float32()),
        "f64": pyarrow.array([3.0, float("nan")], pyarrow.float64()),
        "ok": pyarrow.array([True, False]),
        "view": pyarrow.array(["é", ""], pyarrow.string_view()),
        "fixed": pyarrow.array([[1, None], None], pyarrow.list_(pyarrow.int32(), 2)),
        "ids": pyarrow.array([[(1, "a"), (2, None)], []], pyarrow.map_(pyarrow.int32(), pyarrow.string())),
        "nothing": pyarrow.nulls(2),
        "time": pyarrow.array([1728000001, None], pyarrow.timestamp("s")),
        "money": pyarrow.array([decimal.Decimal("1.50"), None], pyarrow.decimal128(5, 2)),
        "parts": pyarrow.array([[{"a": 1}, {"b": []}], []]),
    })
    # Rows that are refused, and a good one behind them.
    deep = functools.reduce(lambda inner, _: pyarrow.struct({"a": inner}), range(64), pyarrow.int32())
    nested = functools.reduce(lambda inner, _: {"a": inner}, range(64), 1)
    write_arrow("nul", {"a": ["x\0", "y"]})
    write_arrow("twice", [pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    pyarrow.parquet.write_table(pyarrow.table({"a": pyarrow.array([nested, None], deep)}), OUT / "deep.parquet")
    structs = list(rows_with_structs())
    (OUT / "structs.jsonl").write_text("".join(json.dumps(without_null_members(row)) + "\n" for row in structs))
    table = pyarrow.Table.from_pylist(structs)
    pyarrow.parquet.write_table(table, OUT / "structs.parquet")
    pyarrow.feather.write_feather(table, OUT / "structs.arrow", compression="lz4")
    # Texts that unpack to far more than their files hold: one that no memory is taken for, and one row that is
    # longer than a record may be, between two short ones.
    for name, texts in {"unpacks": ["a" * (700 << 20)], "long_row": ["first", "a" * (70 << 20), "last"]}.items():
        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), OUT / f"{name}.parquet", compression="zstd",
                                    use_dictionary=False, write_statistics=False)
    saved = datasets.DatasetDict({"train": datasets.Dataset.from_list(all_rows[:40]),
                                  "test": datasets.Dataset.from_list(all_rows[40:])})
    saved.save_to_disk(str(OUT / "saved"), num_shards={"train": 2, "test": 1})


main()
