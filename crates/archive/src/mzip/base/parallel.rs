//! Work that is shared by threads, with results in order.

use super::error::{MzipError, Result};
use crossbeam_channel::bounded;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// A result, or what a thread panicked with.
type Done<R> = std::result::Result<Result<R>, Box<dyn Any + Send>>;

/// Threads, and the jobs that they have at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mzip) struct Crew {
    pub threads: usize,
    /// Jobs that wait, are worked at, or are done but not yet taken.
    pub jobs: usize,
}

impl Crew {
    /// Who needs the least.
    pub(in crate::mzip) const ONE: Crew = Crew { threads: 1, jobs: 1 };

    /// At most so many threads, so that memory suffices for what a job takes while it is worked at, and for what its result
    /// takes until its turn comes. `None` if it does not suffice for one.
    pub(in crate::mzip) fn within(memory: u64, working: u64, waiting: u64, threads: usize) -> Option<Crew> {
        match (memory / (working + waiting).max(1)).min(threads as u64) as usize {
            0 => (memory >= working).then_some(Crew::ONE),
            threads => Some(Crew { threads, jobs: 2 * threads }),
        }
    }
}

/// Takes jobs until there are none, works at them on several threads, and hands the results over in the order of the jobs.
/// `next` and `take` run on the calling thread.
pub(in crate::mzip) fn in_order<J: Send, R: Send>(
    Crew { threads, jobs: most }: Crew,
    mut next: impl FnMut() -> Result<Option<J>>,
    work: impl Fn(J) -> Result<R> + Sync,
    mut take: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (to_work, jobs) = bounded::<(u64, J)>(most);
        let (to_take, results) = bounded::<(u64, Done<R>)>(most);
        let most = most as u64;
        for n in 0..threads {
            let (jobs, to_take, work) = (jobs.clone(), to_take.clone(), &work);
            let run = move || {
                for (number, job) in jobs {
                    let done = catch_unwind(AssertUnwindSafe(|| work(job)));
                    if to_take.send((number, done)).is_err() {
                        break;
                    }
                }
            };
            let name = format!("mzip-{n}");
            std::thread::Builder::new().name(name).spawn_scoped(scope, run).map_err(MzipError::Thread)?;
        }
        let (mut sent, mut taken, mut is_end) = (0u64, 0u64, false);
        let mut early = BTreeMap::new();
        loop {
            while !is_end && sent - taken < most {
                match next()? {
                    // There are as many places as jobs under way, and receivers as long as `jobs` is here.
                    Some(job) => drop(to_work.send((sent, job))),
                    None => {
                        is_end = true;
                        break;
                    }
                }
                sent += 1;
            }
            if sent == taken {
                return Ok(());
            }
            let Ok((number, done)) = results.recv() else { return Ok(()) };
            early.insert(number, done.unwrap_or_else(|panic| resume_unwind(panic)));
            while let Some(result) = early.remove(&taken) {
                take(result?)?;
                taken += 1;
            }
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_errors_end_the_work() {
        for threads in [Crew::ONE, Crew { threads: 1, jobs: 2 }, Crew { threads: 3, jobs: 6 }] {
            let (mut jobs, mut taken) = (0..200u64, Vec::new());
            in_order(
                threads,
                || Ok(jobs.next()),
                |n| {
                    std::thread::sleep(std::time::Duration::from_micros(n * 37 % 200));
                    Ok(n * 2)
                },
                |n| {
                    taken.push(n);
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(taken, (0..200).map(|n| n * 2).collect::<Vec<u64>>());
            let mut jobs = 0..;
            let ended = in_order(
                threads,
                || Ok(jobs.next()),
                |n: u64| if n == 50 { Err(MzipError::Changed) } else { Ok(n) },
                |n| {
                    assert!(n < 50);
                    Ok(())
                },
            );
            assert!(matches!(ended, Err(MzipError::Changed)));
        }
    }

    #[test]
    fn memory_bounds_a_crew() {
        let within = |memory| Crew::within(memory, 10, 5, 4);
        let crew = |threads, jobs| Some(Crew { threads, jobs });
        assert_eq!([within(9), within(10), within(14)], [None, crew(1, 1), crew(1, 1)]);
        assert_eq!([within(15), within(44), within(1000)], [crew(1, 2), crew(2, 4), crew(4, 8)]);
    }

    #[test]
    #[should_panic(expected = "five")]
    fn panics_arrive() {
        let mut jobs = 0..;
        let _ = in_order(
            Crew { threads: 2, jobs: 4 },
            || Ok(jobs.next()),
            |n: u64| {
                assert!(n != 5, "five");
                Ok(n)
            },
            |_| Ok(()),
        );
    }
}
