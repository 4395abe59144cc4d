//! Heartbeat: whether the threads of the process run.
//!
//! Owns: asking the workers, the control thread and the provider's threads, and their answers. Does
//! not own: what follows when one is silent.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};

use gateway::server::{Gateway, WorkerPing};
use tokio::runtime::Handle;

use super::{Process, ProcessState};

/// Asks the threads of a process whether they run.
pub struct Heartbeat {
    process: Arc<ProcessState>,
    /// Runtimes beside the workers, by the name of their threads.
    runtimes: Vec<(&'static str, Handle)>,
    asked: Option<Question>,
}

/// A question to all threads, with the answers so far.
struct Question {
    /// `None`: the workers are stopping.
    workers: Option<WorkerPing>,
    unanswered: BTreeSet<&'static str>,
    answers: mpsc::Receiver<&'static str>,
}

impl Process {
    /// What asks the threads whether they run.
    pub fn heartbeat(&self) -> Heartbeat {
        let provider = self.provider.as_ref().map(|provider| ("provider", provider.runtime().clone()));
        let runtimes = [("control", self.control.handle().clone())].into_iter().chain(provider).collect();
        Heartbeat { process: self.shared.clone(), runtimes, asked: None }
    }
}

impl Heartbeat {
    /// Names of the threads that have not answered the last question. If all have, the next question
    /// is asked. Does not wait.
    pub fn silent_threads(&mut self) -> Vec<String> {
        let silent = self.asked.as_mut().map(Question::silent_threads).unwrap_or_default();
        if silent.is_empty() {
            self.asked = Some(self.ask());
        }
        silent
    }

    fn ask(&self) -> Question {
        let (answer, answers) = mpsc::channel();
        for (name, runtime) in &self.runtimes {
            let (name, answer) = (*name, answer.clone());
            runtime.spawn(async move {
                // Nobody waits any more when the process ends.
                let _ = answer.send(name);
            });
        }
        Question {
            workers: self.process.gateway.lock().as_ref().map(Gateway::ping_workers),
            unanswered: self.runtimes.iter().map(|(name, _)| *name).collect(),
            answers,
        }
    }
}

impl Question {
    fn silent_threads(&mut self) -> Vec<String> {
        for name in self.answers.try_iter() {
            self.unanswered.remove(name);
        }
        let workers = self.workers.as_mut().map(WorkerPing::unanswered).unwrap_or_default();
        self.unanswered.iter().map(|name| (*name).to_owned()).chain(workers).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn a_thread_that_is_stuck_is_named_until_it_runs_again() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let process = ProcessState {
            gateway: Mutex::new(None),
            effective: Mutex::new(String::new()),
            draining: AtomicBool::new(false),
            followed_logs: Mutex::new(Vec::new()),
            events: None,
            provider: None,
            gateway_api: std::sync::OnceLock::new(),
        };
        let (process, runtimes) = (Arc::new(process), vec![("control", runtime.handle().clone())]);
        let mut heartbeat = Heartbeat { process, runtimes, asked: None };
        let until = |heartbeat: &mut Heartbeat, expected: &[&str]| {
            let began = Instant::now();
            while heartbeat.silent_threads() != expected {
                assert!(began.elapsed() < Duration::from_secs(30), "never {expected:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        until(&mut heartbeat, &[]);
        let (release, released) = mpsc::channel::<()>();
        let (enter, is_stuck) = mpsc::channel();
        runtime.spawn(async move { enter.send(()).is_ok() && released.recv().is_ok() });
        is_stuck.recv().unwrap();
        // The question that was asked before has its answer, the next one gets none.
        until(&mut heartbeat, &["control"]);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(heartbeat.silent_threads(), ["control"]);
        release.send(()).unwrap();
        until(&mut heartbeat, &[]);
    }
}
