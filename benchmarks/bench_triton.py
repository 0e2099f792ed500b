"""Check the Triton kernels on a GPU, then time block sizes at the real shape: `python bench_triton.py result.json`.

Errors count against float64, in units of those of plain PyTorch in bfloat16: 2 is the limit. Times are milliseconds
for both sides of a batch of 512 triples with 500 negatives each, 512 dimensions, 14,951 entities.
"""

import json
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "kernels")]

from quadratic_reference import random_problem, reference_scores, relative_errors, scores_and_gradients  # noqa: E402

from harmonium.kernels.triton_quadratic import Blocks, default_blocks, prepare, quadratic_scores  # noqa: E402

START = time.perf_counter()
SECONDS = 150  # no check or configuration starts later than this
ENTITIES, D, BATCH, N = 14_951, 512, 1_024, 501  # both sides of 512 triples
FLOPS = 2 * BATCH * N * D * D  # of one full product y M
PRODUCT, COMPLEX = "product", "complex"


CASES = [  # operation, d, n, groups
    (PRODUCT, 512, 501, 1),
    (COMPLEX, 512, 501, 5),
    (COMPLEX, 512, 33, 5),
    (PRODUCT, 97, 33, 1),
    (PRODUCT, 7, 1, 3),
    (PRODUCT, 64, 501, 3),
    (COMPLEX, 64, 33, 1),
    (COMPLEX, 64, 1, 5),
    (COMPLEX, 6, 33, 3),
    (COMPLEX, 98, 501, 1),
]
SWEEP = {
    "forward": [{}, {"rows": 16}, {"width": 256}, {"warps": 4}],
    "backward": [{}, {"gradient_rows": 16}, {"columns": 128, "gradient_rows": 4}],
    "moment": [{}, {"step": 64, "moment_stages": 4}, {"moment_stages": 2}, {"split": 26}, {"split": 132}],
}
GROUPED = SWEEP | {"moment": [*SWEEP["moment"][:3], {"split": 2}, {"split": 4}]}


def sign_of(operation, batch) -> torch.Tensor | None:
    """Alternating signs for the complex product."""
    return None if operation == PRODUCT else 1 - 2 * (torch.arange(batch, device="cuda") % 2).float()


def attempt(function, *arguments, **options):
    """The result, or the error, so that one failure does not end the run."""
    if time.perf_counter() - START > SECONDS:
        return {"skipped": "out of time"}
    try:
        return function(*arguments, **options)
    except Exception as failure:
        return {"failed": f"{type(failure).__name__}: {str(failure)[:300]}"}


def check(operation, d, n, groups) -> dict[str, float]:
    """Errors of scores and gradients over those of plain PyTorch in bfloat16."""
    batch = 8 if n > 1 else 256
    problem = random_problem(300, d, batch, n, groups, "cuda")
    gs, sign = torch.randn(batch, n, device="cuda"), sign_of(operation, batch)
    define = partial(reference_scores, sign=sign)
    exact = scores_and_gradients(define, problem, torch.float64, gs)
    plain = relative_errors(scores_and_gradients(define, problem, torch.bfloat16, gs), exact)
    errors = relative_errors(
        scores_and_gradients(partial(quadratic_scores, sign=sign), problem, torch.float32, gs), exact
    )
    return {name: errors[name] / plain[name] for name in errors}


def check_fp32() -> dict[str, float]:
    """Relative errors with fp32 operands."""
    problem = random_problem(300, 64, 8, 33, 3, "cuda")
    gs = torch.randn(8, 33, device="cuda")
    sign = sign_of(COMPLEX, 8)
    exact = scores_and_gradients(partial(reference_scores, sign=sign), problem, torch.float64, gs)
    kernels = partial(quadratic_scores, sign=sign, operand_dtype=torch.float32)
    return relative_errors(scores_and_gradients(kernels, problem, torch.float32, gs), exact)


def milliseconds(function, repeats=10) -> float:
    for _ in range(3):
        function()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / repeats


def real_problem(groups) -> tuple[dict, torch.Tensor]:
    """The real shape; the sizes of groups fall off like those of relations."""
    problem = random_problem(ENTITIES, D, BATCH, N, groups, "cuda")
    if groups > 1:
        weights = 1 / torch.arange(1.0, groups + 1)
        problem["group"] = torch.multinomial(weights, BATCH, replacement=True).sort().values.int().cuda()
    return problem, torch.randn(BATCH, N, device="cuda") / N


def parts(problem, gs, operation, blocks) -> dict:
    """{part: function that runs it once}."""
    ids, rest = problem["ids"], {name: x for name, x in problem.items() if name != "ids"}
    op = prepare(**rest, sign=sign_of(operation, BATCH), n=N, blocks=blocks)
    offsets = torch.searchsorted(op.group, torch.arange(len(op.matrix) + 1, device="cuda").int(), out_int32=True)
    _, y, pushed = op.scores(ids)
    return {
        "forward": lambda: op.scores(ids),
        "backward": lambda: op.vector_gradients(ids, gs, pushed),
        "moment": lambda: op.matrix_gradient(gs, y, offsets),
    }


def time_part(part, problem, gs, operation, blocks) -> float:
    return milliseconds(parts(problem, gs, operation, blocks)[part])


def time_total(problem, gs, operation, blocks) -> dict[str, float]:
    """Forward and backward, casts included, replayed from a CUDA graph; and whether it agrees."""
    sign = sign_of(operation, BATCH)
    leaves = {name: problem[name].requires_grad_() for name in ("table", "query", "matrix", "linear")}

    def step():
        scores = quadratic_scores(**problem, sign=sign, blocks=blocks)
        return scores.detach(), *torch.autograd.grad(scores, list(leaves.values()), gs)

    expected = [x.clone() for x in step()]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    graph.replay()
    difference = max(((x - y).norm() / y.norm()).item() for x, y in zip(outputs, expected, strict=True))
    return {"ms": milliseconds(graph.replay), "graph_difference": difference}


def sweep(result, name, problem, gs, operation, start, configurations) -> Blocks:
    """Time each part under its configurations; the fastest of each together."""
    best = start
    for part, changes_of_part in configurations.items():
        times = []
        for changes in changes_of_part:
            ms = attempt(time_part, part, problem, gs, operation, replace(start, **changes))
            result["times"].append({"part": f"{part}_{name}", "changes": changes, "ms": ms})
            times += [(ms, changes)] if isinstance(ms, float) else []
        if times:
            best = replace(best, **min(times, key=lambda entry: entry[0])[1])
    return best


def main(path: str) -> None:
    result = {"command": f"python benchmarks/bench_triton.py {path}", "device": torch.cuda.get_device_name()}
    result |= {"torch": torch.__version__, "checks": [], "times": []}
    for case in CASES:
        result["checks"].append({"case": case, "result": attempt(check, *case)})
    result["checks"].append({"case": "fp32", "result": attempt(check_fp32)})
    for operation, groups in ((PRODUCT, 1), (COMPLEX, 272)):
        problem, gs = real_problem(groups)
        start = default_blocks(D, N, BATCH, groups, torch.bfloat16)
        best = sweep(result, operation, problem, gs, operation, start, SWEEP if groups == 1 else GROUPED)
        result[f"best_{operation}"], result[f"total_{operation}"] = (
            asdict(best),
            attempt(time_total, problem, gs, operation, best),
        )
    result["seconds"] = time.perf_counter() - START
    Path(path).write_text(json.dumps(result, indent=1))

    print("\nchecks (limit 2, fp32: 1e-5)")
    for entry in result["checks"]:
        values = entry["result"]
        numbers = all(not isinstance(x, str) for x in values.values())
        print(f"  {entry['case']}: {max(values.values()) if numbers else values}")
    print("times, ms (and TFLOP/s as if of full products)")
    for entry in result["times"]:
        speed = f"{FLOPS / entry['ms'] / 1e9:6.0f}" if isinstance(entry["ms"], float) else ""
        print(f"  {entry['part']:18}{entry['ms'] if not speed else round(entry['ms'], 3)} {speed}  {entry['changes']}")
    for name in ("total_product", "total_complex", "best_product", "best_complex", "seconds"):
        print(f"  {name}: {result[name]}")


if __name__ == "__main__":
    main(sys.argv[1])
