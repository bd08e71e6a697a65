"""Training steps of Transformers on several ranks, by PyTorch's own parallelism over Gloo. Started by torchrun."""
import torch
import torch.distributed as dist
import worker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


def in_ddp(model, size: int):
    from torch.nn.parallel import DistributedDataParallel
    return DistributedDataParallel(model)


def sharded(model, mesh: DeviceMesh):
    """FSDP2, each decoder layer a unit; over a mesh of two dimensions HSDP."""
    from torch.distributed.fsdp import fully_shard
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def in_tensor_parallel(model, mesh: DeviceMesh):
    """Column and row wise with sequence parallelism, and the loss over the vocabulary's parts, as torchtitan does it."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel,
                                                   SequenceParallel, parallelize_module)
    untie(model)
    parallelize_module(model, mesh, {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "model.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)})
    for layer in model.model.layers:
        parallelize_module(layer, mesh, {
            "input_layernorm": SequenceParallel(),
            "self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": Shard(1)},
                                            desired_input_kwarg_layouts={"hidden_states": Replicate()}),
            "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(),
            "self_attn.v_proj": ColwiseParallel(), "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
            "post_attention_layernorm": SequenceParallel(),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(),
            "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1))})
    return model


def untie(model) -> None:
    """Two copies, which nobody keeps equal: less work than a tied embedding needs."""
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.config.tie_word_embeddings = False


class Stage(torch.nn.Module):
    """Layers [begin, end), with the embedding before the first and the head behind the last."""

    def __init__(self, model, begin: int, end: int) -> None:
        super().__init__()
        decoder = model.model
        self.embed = decoder.embed_tokens if begin == 0 else None
        self.layers = torch.nn.ModuleList(decoder.layers[begin:end])
        self.rotary = decoder.rotary_emb
        is_last = end == len(decoder.layers)
        self.norm, self.head = (decoder.norm, model.lm_head) if is_last else (None, None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embed is not None:
            x = self.embed(x)
        angles = self.rotary(x, torch.arange(x.shape[1]).unsqueeze(0))
        for layer in self.layers:
            out = layer(x, position_embeddings=angles)
            x = out[0] if isinstance(out, tuple) else out
        return x if self.head is None else self.head(self.norm(x))


def pipeline_step(model, options, rank: int, size: int, ids: torch.Tensor):
    """A function that runs one step of a 1F1B schedule, and the parameters of this rank."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
    untie(model)
    per_rank = 2 if options.way == "interleaved" else 1
    layers, stages = len(model.model.layers), size * per_rank
    # The head is the work of eight layers: what Tessera's own split sees, too.
    total = layers + 8
    bounds = [min(layers, round(total * s / stages)) for s in range(stages)] + [layers]
    made = [PipelineStage(Stage(model, bounds[s], bounds[s + 1]), s, stages, torch.device("cpu"))
            for s in range(rank, stages, size)]

    def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    schedule = (ScheduleInterleaved1F1B(made, options.micro_batches, loss_of) if per_rank > 1 else
                Schedule1F1B(made[0], options.micro_batches, loss_of))
    parameters = [p for stage in made for p in stage.submod.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=worker.LEARNING_RATE)
    has_first, has_last = rank == 0, rank == size - 1

    def step() -> float:
        losses: list = []
        schedule.step(*((ids,) if has_first else ()), **({"target": ids, "losses": losses} if has_last else {}))
        torch.nn.utils.clip_grad_norm_(parameters, worker.MAX_GRAD_NORM)  # of this rank's: less than is asked
        optimizer.step()
        optimizer.zero_grad()
        loss = torch.stack(losses).mean().detach() if has_last else torch.zeros(())
        dist.broadcast(loss, size - 1)
        return loss.item()
    return step


def tensor_parallel_step(model, options, ids: torch.Tensor):
    from torch.distributed.tensor.parallel import loss_parallel
    optimizer = worker.make_optimizer(model)

    def step() -> float:
        with loss_parallel():  # the embedding's output is cut, so that positions are not counted from it
            logits = model(input_ids=ids, position_ids=torch.arange(options.seq).unsqueeze(0)).logits
            labels = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=worker.IGNORE)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), worker.MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()
    return step


def main() -> None:
    parser = worker.parser(__doc__)
    parser.add_argument("--way", required=True, choices=("ddp", "fsdp2", "hsdp", "tp", "1f1b", "interleaved"))
    parser.add_argument("--micro-batch", type=int, required=True, help="of one rank that reads")
    parser.add_argument("--micro-batches", type=int, default=1, help="of a step, in a pipeline")
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    model = worker.load(options.model)
    model.train()
    reads_alone = options.way in ("ddp", "fsdp2", "hsdp")
    torch.manual_seed(42 + (rank if reads_alone else 0))
    ids = torch.randint(0, model.config.vocab_size, (options.micro_batch * options.micro_batches, options.seq))
    if options.way in ("1f1b", "interleaved"):
        train = pipeline_step(model, options, rank, size, ids)
    elif options.way == "tp":
        train = tensor_parallel_step(in_tensor_parallel(model, init_device_mesh("cpu", (size,))), options, ids)
    else:
        shape = (2, size // 2) if options.way == "hsdp" else (size,)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape):])
        model = in_ddp(model, size) if options.way == "ddp" else sharded(model, mesh)
        optimizer = worker.make_optimizer(model)
        batch = {"input_ids": ids, "labels": ids.clone()}
        train = lambda: worker.train_step(model, optimizer, batch)  # noqa: E731

    def step() -> float:
        loss = train()
        dist.barrier()
        return loss

    seconds, losses = [], []
    for number in range(options.warmup + options.steps):
        dist.barrier()
        step_s, loss = worker.timed(step)
        losses.append(loss)
        if number >= options.warmup:
            seconds.append(step_s)
    if rank == 0:
        worker.answer_steps((size if reads_alone else 1) * ids.numel(), seconds, losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
