//! Scrapes: reads the metrics of the gateway at a fixed interval, as Prometheus does.
//!
//! Owns: time and size of each. Does not own: what the metrics say.

use std::io;
use std::time::{Duration, Instant};

use lab_analysis::record::{Distribution, Scrapes};
use lab_analysis::units::{count, nanos};
use tokio::runtime::Builder;

use super::Course;
use crate::fetch::{AsyncClient, encode_request};
use crate::load::{Moments, RequestTemplate, Target};

/// Longest wait for a response, as in Prometheus.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest response in bytes.
const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// Scrapes from the start time until the end.
pub(super) fn run(target: Target, every: Duration, course: Course, moments: &Moments) -> io::Result<Scrapes> {
    let Course { start, mut ended, interrupt } = course;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut scrapes = Scrapes {
        failed: 0,
        example: None,
        largest_bytes: 0,
        duration: Distribution::of([], 3),
        windows: None,
    };
    let mut durations = Vec::new();
    // Without a start time the load never began.
    let Ok(from) = start.recv() else { return Ok(scrapes) };
    let request = encode_request(&RequestTemplate::get(), &target).map_err(io::Error::other)?;
    let mut client = AsyncClient::new(target, MAX_RESPONSE_BYTES);
    runtime.block_on(async {
        let mut at = from + every / 2;
        loop {
            tokio::select! {
                _ = ended.wait_for(|ended| *ended) => break,
                () = interrupt.wait() => break,
                () = tokio::time::sleep_until(at.into()) => {}
            }
            at += every;
            let begun = Instant::now();
            moments.begin();
            let answer = client.send(&request, RESPONSE_TIMEOUT).await;
            match answer {
                Ok(answer) if answer.status == 200 => {
                    durations.push(nanos(begun.elapsed()));
                    scrapes.largest_bytes = scrapes.largest_bytes.max(count(answer.content.len()));
                }
                Ok(answer) => {
                    scrapes.failed += 1;
                    scrapes.example.get_or_insert(format!("{}: {}", answer.status, answer.excerpt()));
                }
                Err(why) => {
                    scrapes.failed += 1;
                    scrapes.example.get_or_insert(why);
                }
            }
        }
    });
    scrapes.duration = Distribution::of(durations, 3);
    Ok(scrapes)
}
