"""How fast this machine reads memory: the sum over a tensor far larger than the caches."""
import torch
import worker


def main() -> None:
    parser = worker.parser(__doc__)
    parser.add_argument("--passes", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    values = torch.ones(1 << 28)
    best = min(worker.timed(values.sum)[0] for _ in range(1 + options.passes))
    worker.answer(bytes_per_s=values.nbytes / best)


if __name__ == "__main__":
    main()
