"""One side of a comparison, in a process of its own: `python -m benchmarks.side JOB DATASET FOLDER RESULT`.

JOB is a job as JSON, DATASET the folder of its staged files, FOLDER scratch space that does not exist yet,
RESULT the file to write the measurement to. Each engine is imported only where it is measured.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.data import Feed
from benchmarks.job import Job, Measured


def measure(job: Job, dataset: Path, folder: Path) -> Measured:
    if job.restart is not None:
        from benchmarks import recovery

        return recovery.measure(job, Feed(dataset, folder / "landing"), folder)
    if job.query in ("tpch", "tpcds"):
        from benchmarks import tpcds, tpch

        batch = job.engine == "batch"
        if job.query == "tpch":
            return tpch.measure_batch(job, dataset) if batch else tpch.measure_kept(job, dataset, folder)
        return tpcds.measure_batch(job, dataset) if batch else tpcds.measure_kept(job, dataset, folder)
    if job.engine != "slipstream":
        from benchmarks import structured

        return structured.measure(job, Feed(dataset, folder / "landing"), folder)
    if job.query in ("adding", "replacing"):
        from benchmarks import changing

        measured = changing.measure_adding if job.query == "adding" else changing.measure_replacing
        return measured(job, Feed(dataset, folder / "landing"), folder)
    if job.query == "sinks":
        from benchmarks import delivering

        return delivering.measure(job, Feed(dataset, folder / "landing"), folder)
    from benchmarks import ours

    if job.query == "floor":
        return ours.measure_floor()
    return ours.measure(job, Feed(dataset, folder / "landing"), folder)


def main(arguments: list[str]) -> None:
    job, dataset, folder, result = arguments
    Path(folder).mkdir(parents=True)
    measured = measure(Job.from_json(job), Path(dataset), Path(folder))
    Path(result).write_text(measured.to_json())


if __name__ == "__main__":
    main(sys.argv[1:])
