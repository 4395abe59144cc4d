//! Measures the cost of passwords: `cargo run --release -p idp --example password_cost`.
//!
//! Prints milliseconds of one verification for each set of parameters, with reused and with fresh
//! memory. Prints verifications per second of the pool, and microseconds of the rules and of the
//! cache of verified passwords. Each figure is the best of several rounds, because load on the
//! machine only increases the cost.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement prints, and stops when it cannot"
)]

use std::{
    hint::black_box,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use auth::time::Timestamp;
use aws_lc_rs::rand::SystemRandom;
use idp::passwords::{
    Hasher, Memory, Parameters, Password, Pool, PoolConfig, Verdict,
    rules::{Rules, UserData},
    verified::VerifiedPasswords,
};

const ROUNDS: u32 = 5;
const POOLED: u32 = 100;
const RIGHT: Verdict = Verdict::Right { is_outdated: false };

/// Seconds per call, the best of several rounds of `calls`.
fn measure(calls: u32, mut call: impl FnMut()) -> f64 {
    let round = || {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_secs_f64() / f64::from(calls)
    };
    std::iter::repeat_with(round).take(ROUNDS as usize).fold(f64::INFINITY, f64::min)
}

/// Verifications per second of a pool that always has work.
fn pooled(threads: Option<usize>, parameters: Parameters) -> (usize, f64) {
    let config = PoolConfig::new(threads, Some(POOLED as usize), Duration::from_secs(1)).unwrap();
    let pool = Arc::new(Pool::start(config, parameters, Arc::new(SystemRandom::new())).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let seconds = local.block_on(&runtime, async {
        let password = Password::new("correct horse battery".into()).unwrap();
        let stored = pool.hash(password.clone()).await.unwrap().encode();
        let start = Instant::now();
        let callers: Vec<_> = (0..POOLED)
            .map(|_| {
                let (pool, password, stored) = (Arc::clone(&pool), password.clone(), stored.clone());
                tokio::task::spawn_local(async move { pool.verify(password, Some(stored)).await })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.await.unwrap(), Ok(RIGHT));
        }
        start.elapsed().as_secs_f64()
    });
    (config.threads(), f64::from(POOLED) / seconds)
}

fn main() {
    let entropy = SystemRandom::new();
    let password = Password::new("correct horse battery".into()).unwrap();
    let cores = thread::available_parallelism().unwrap();
    println!("{cores} cores");
    for (name, parameters) in [
        ("owasp (default)", Parameters::OWASP),
        ("keycloak", Parameters::KEYCLOAK),
        ("owasp 12 MiB", Parameters::new(12288, 3, 1).unwrap()),
        ("owasp 46 MiB", Parameters::new(47104, 1, 1).unwrap()),
        ("rfc 9106 second", Parameters::new(65536, 3, 4).unwrap()),
    ] {
        let hasher = Hasher::new(parameters, &entropy).unwrap();
        let mut memory = Memory::new();
        let stored = hasher.hash(&password, &entropy, &mut memory).unwrap().encode();
        let verify = |memory: &mut Memory| {
            assert_eq!(hasher.verify(&password, Some(&stored), memory), Ok(RIGHT));
        };
        let kept = measure(10, || verify(&mut memory)) * 1e3;
        let fresh = measure(10, || verify(&mut Memory::new())) * 1e3;
        println!(
            "{name:16} {:6} KiB {} × {}   verify {kept:6.2} ms, with fresh memory {fresh:6.2} ms",
            parameters.memory_kib(),
            parameters.iterations(),
            parameters.parallelism(),
        );
        for threads in [Some(1), None] {
            let (threads, rate) = pooled(threads, parameters);
            println!("{:16} pool of {threads}: {rate:6.1} verifications/s", "");
        }
    }
    let rules = Rules::default();
    for (name, text) in [
        ("8 characters", "vq7Rk2mZ".to_owned()),
        ("4 words", "zebra mountain quartz lamp".to_owned()),
        ("100 characters", "p4$$w0rd1!".repeat(10)),
        ("tedious", "4@8({[<369!|10$57+%2".repeat(60)[..1024].to_owned()),
    ] {
        let password = Password::new(text).unwrap();
        let micros = measure(5, || {
            black_box(rules.check(&password, UserData::default())).ok();
        }) * 1e6;
        println!("rules, {name:15} {micros:9.1} µs");
    }
    let verified = VerifiedPasswords::new(Duration::from_secs(10), 1000, &entropy).unwrap();
    let now = Timestamp::from_secs(1_800_000_000);
    let stored = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
    verified.insert("ada", stored, &password, RIGHT, now);
    let micros =
        measure(10_000, || assert!(black_box(verified.contains("ada", stored, &password, now)))) * 1e6;
    println!("verified a moment ago    {micros:9.2} µs");
}
