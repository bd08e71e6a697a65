#!/usr/bin/env python3
"""Names the keys of other tools' recipes that example_keys.txt does not have: check_example_keys.py FOLDER...

Reads every .yaml, .yml and .json file below the folders with PyYAML. Exit code 1 where a key is missing, so that a newer version of those
tools shows what it has added. Needs no more than the files."""
import pathlib
import sys

import yaml

HERE = pathlib.Path(__file__).parent
# Maps whose keys have a meaning of their own; those of others are their values.
SECTIONS = {"fsdp_config", "deepspeed", "deepspeed_config", "parallelism_config", "zero_optimization", "bf16", "fp16",
            "offload_optimizer", "offload_param", "aio", "gradient_checkpointing_kwargs", "special_tokens"}
# Of files that are no recipes, but set up services that run them.
SERVICE = {"provider", "dockerfile_commands"}


def kept_keys():
    names = set()
    for line in (HERE / "example_keys.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            names.update(part for part in line.split(None, 1)[1].split("=")[0].split(".") if not part.isdigit())
    return names


def keys_of(node):
    for key, value in node.items():
        yield key
        if key in SECTIONS and isinstance(value, dict):
            yield from keys_of(value)
        if key in ("datasets", "test_datasets", "pretraining_dataset") and isinstance(value, list):
            for entry in value:
                if isinstance(entry, dict):
                    yield from keys_of(entry)


def main(folders):
    kept, missing, count = kept_keys(), {}, 0
    for folder in folders:
        for path in sorted(p for p in pathlib.Path(folder).rglob("*") if p.suffix in (".yaml", ".yml", ".json")):
            document = yaml.safe_load(path.read_text())
            if not isinstance(document, dict) or SERVICE & document.keys():
                continue
            count += 1
            for key in keys_of(document):
                if key not in kept:
                    missing.setdefault(key, []).append(str(path))
    for key, paths in sorted(missing.items()):
        print(f"{key}: in {len(paths)} files, such as {paths[0]}")
    print(f"{count} files, {len(missing)} keys that are not kept")
    return 1 if missing or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
