"""Jobs of projects, drawn and by hand."""

from hypothesis import strategies as st

from gpuplan.planner.capacity.jobs import Job

KINDS = ("A", "B")


def job(hours: float = 10.0, accelerators: int = 8, **changes: object) -> Job:
    """Return a job of one run."""
    given: dict[str, object] = {
        "name": "job",
        "experiment": "job",
        "accelerator": "A",
        "per_run": accelerators,
        "runs": 1,
        "parallel": 1,
        "run_h": hours,
        "shortest": 0.8,
        "longest": 1.25,
        "earliest_h": 0.0,
        "after": (),
    }
    return Job(**{**given, **changes})  # pyright: ignore[reportArgumentType]


@st.composite
def projects(draw: st.DrawFn, most: int = 8) -> list[Job]:
    """Draw jobs of whole hours, each after some of those before it."""
    found: list[Job] = []
    for number in range(draw(st.integers(1, most))):
        found.append(
            job(
                float(draw(st.integers(1, 4))),
                draw(st.integers(1, 4)),
                name=f"job {number}",
                accelerator=draw(st.sampled_from(KINDS)),
                runs=draw(st.integers(1, 4)),
                parallel=draw(st.integers(1, 3)),
                earliest_h=float(draw(st.integers(0, 3))),
                after=tuple(sorted(draw(st.sets(st.integers(0, max(0, number - 1)), max_size=2))))
                if number
                else (),
                priority=draw(st.integers(1, 3)),
            )
        )
    return found
