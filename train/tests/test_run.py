"""Processes of a run stop at the same step, and the curve holds what was logged."""
import json
import os
import time

import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from network.run import LOG_STEPS, Run, join_processes


def run_to_the_end(folder) -> Run:
    device, rank, world = join_processes()
    run = Run(0.01, folder, lambda: None, device, rank, world)
    loader = iter(range(10 ** 9))
    while run.done < 1:
        run.next(loader)
        time.sleep(0.004 * (rank + 1))  # one is slower than the other
        if run.end_step():
            run.log({"loss": 0.5, "tokens_per_second": run.rate(100)})
    return run


def one_of_two(rank: int, folder) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511",
                      CUDA_VISIBLE_DEVICES="")
    run = run_to_the_end(folder)
    (folder / f"{rank}").write_text(str(run.step))
    dist.destroy_process_group()  # as the programs do: a process that ends without it may abort


def test_processes_stop_at_the_same_step(tmp_path):
    multiprocessing.spawn(one_of_two, (tmp_path,), nprocs=2)
    first, second = (int((tmp_path / name).read_text()) for name in "01")
    assert first == second and first % LOG_STEPS == 0


def test_the_curve_holds_what_was_logged(tmp_path):
    run = run_to_the_end(tmp_path / "new")
    run.write({"page_loss": 0.25})
    rows = [json.loads(line) for line in (tmp_path / "new/curve.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows[:2]] == [LOG_STEPS, 2 * LOG_STEPS]
    assert rows[0]["loss"] == 0.5 and rows[0]["waiting"] < 0.5
    assert 100 / 0.02 < rows[1]["tokens_per_second"] < 100 / 0.004  # the first step starts the clock
    assert rows[-1]["step"] == run.step and rows[-1]["page_loss"] == 0.25
