"""Training steps of Transformers under PyTorch FSDP2 over Gloo, each decoder layer a unit. Started by torchrun."""
import torch
import torch.distributed as dist
import worker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    parser = worker.parser(__doc__)
    parser.add_argument("--micro-batch", type=int, required=True, help="of one rank")
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))

    model = worker.load(options.model)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.train()
    optimizer = worker.make_optimizer(model)
    torch.manual_seed(42 + rank)
    ids = torch.randint(0, model.config.vocab_size, (options.micro_batch, options.seq))
    batch = {"input_ids": ids, "labels": ids.clone()}

    def step() -> float:
        loss = worker.train_step(model, optimizer, batch)
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
        worker.answer_steps(size * options.micro_batch * options.seq, seconds, losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
