"""PyTorch's distributed checkpoint of a model and its AdamW states, in one process: FOLDER MODEL TURNS."""
import json
import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from transformers import AutoModelForCausalLM


def _forget(folder: pathlib.Path) -> None:
    """Out of the page cache and onto the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _timed(best: dict[str, float], name: str, work) -> object:
    start = time.perf_counter()
    result = work()
    best[name] = min(best.get(name, float("inf")), time.perf_counter() - start)
    return result


def main(folder: str, model_folder: str, turns: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model(input_ids=torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
    optimizer.step()
    weights, states = get_state_dict(model, optimizer)
    carried = {"model": weights, "optimizer": states}
    best: dict[str, float] = {}
    for _ in range(int(turns)):
        place = pathlib.Path(folder) / "dcp"
        shutil.rmtree(place, ignore_errors=True)
        _timed(best, "save_s", lambda: dcp.save(carried, checkpoint_id=place, no_dist=True))
        _forget(place)
        _timed(best, "load_s", lambda: dcp.load(carried, checkpoint_id=place, no_dist=True))
        num_bytes = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        shutil.rmtree(place, ignore_errors=True)
        pending = _timed(best, "copy_s", lambda: dcp.async_save(carried, checkpoint_id=place, no_dist=True))
        pending.result()
        shutil.rmtree(place, ignore_errors=True)
    print(json.dumps({"bytes": num_bytes, **best}))


if __name__ == "__main__":
    main(*sys.argv[1:])
