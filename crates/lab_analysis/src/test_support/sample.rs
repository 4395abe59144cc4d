//! Sample record: a complete, invented but plausible record, the same for each seed.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::record::{
    Arrivals, Cgroup, Class, Component, Distribution, GeneratorUse, Iteration, Ladder, LoadShape, Machine,
    Origin, Outcome, Peer, Phase, Record, Reference, Run, Rung, Sample, Slice, Staleness, Sweep, Variant,
};

/// `SplitMix64`, as a function of a counter. A test must not depend on the random generator that it
/// tests.
pub struct Dice(
    /// State; at first the seed.
    pub u64,
);

impl Dice {
    /// A uniform number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A latency around `typical` µs with a tail, in ns.
    fn latency(&mut self, typical: f64) -> u64 {
        let normal = (0..6).map(|_| self.unit()).sum::<f64>() - 3.0;
        let tail = if self.unit() > 0.985 { 2.5 } else { 1.0 };
        (typical * (0.25 * normal).exp() * tail * 1e3) as u64
    }
}

/// Parameters of a variant.
pub struct Plan<'a> {
    /// Name of the variant.
    pub name: &'a str,
    /// Median latency in µs.
    pub typical_us: f64,
    /// Successful responses per second.
    pub per_s: f64,
    /// Names of components with their CPU time per request, in µs.
    pub cpu_us: &'a [(&'a str, f64)],
    /// CPU limit of the last component, in cores.
    pub limit: Option<f64>,
}

const SECONDS: u64 = 12;
const WARMUP: u64 = 2;

/// An open loop with this rate.
pub fn load(per_s: f64) -> LoadShape {
    LoadShape {
        arrivals: Arrivals::Open,
        concurrency: None,
        rate_per_s: Some(per_s),
        stages: Vec::new(),
        flow: "request".to_owned(),
        protocol: Some("http/1.1".to_owned()),
        tokens: Some(1000),
        timeout_s: Some(5.0),
    }
}

/// A variant with this many iterations.
pub fn variant(plan: &Plan<'_>, iterations: u32, dice: &mut Dice) -> Variant {
    let iterations = (1..=iterations).map(|number| iteration(plan, number, dice)).collect();
    Variant {
        name: plan.name.to_owned(),
        topology: plan.cpu_us.iter().map(|(name, _)| *name).rev().collect::<Vec<_>>().join(" → "),
        path: plan.cpu_us.iter().map(|(name, _)| (*name).to_owned()).rev().collect(),
        labels: BTreeMap::from([("token".to_owned(), "oidc".to_owned())]),
        load: load(plan.per_s),
        iterations,
        missing: Vec::new(),
        counters: BTreeMap::new(),
        profile: None,
    }
}

fn iteration(plan: &Plan<'_>, number: u32, dice: &mut Dice) -> Iteration {
    // Drift of the machine, which is the same for all variants of a round.
    let drift = 1.0 + 0.02 * f64::from(number % 3) + 0.006 * (dice.unit() - 0.5);
    let requests = (plan.per_s * SECONDS as f64) as usize;
    let latencies: Vec<u64> =
        (0..requests.min(6000)).map(|_| dice.latency(plan.typical_us * drift)).collect();
    let count = latencies.len() as u64;
    let latency = Distribution::of(latencies, 3);
    let refused: Vec<u64> =
        if plan.limit.is_some() { vec![5_000_800_000, 5_001_100_000] } else { Vec::new() };
    let class = |outcome, status, latency: Distribution, example: Option<&str>| Class {
        outcome,
        status: Some(status),
        fault: None,
        count: latency.count(),
        latency: Some(latency),
        example: example.map(str::to_owned),
    };
    let mut classes = vec![class(Outcome::Ok, 200, latency.clone(), None)];
    if !refused.is_empty() {
        classes.push(class(
            Outcome::Refused,
            403,
            Distribution::of(refused, 3),
            Some("authorization server timed out"),
        ));
    }
    Iteration {
        start_ms: u64::from(number) * 15_000,
        warmup_s: WARMUP as f64,
        classes,
        service: Some(latency),
        generator: Some(GeneratorUse {
            cpu_share: Some(0.31),
            core_wait_share: Some(0.02),
            stolen_share: Some(0.0),
            lag_p99_us: Some(40.0),
            limited: false,
        }),
        timeline: timeline(plan, drift, dice),
        components: components(plan, dice),
        phases: phases(plan, dice),
        ..Iteration::new(number, count as f64 / plan.per_s)
    }
}

fn timeline(plan: &Plan<'_>, drift: f64, dice: &mut Dice) -> Vec<Slice> {
    (0..SECONDS + WARMUP)
        .map(|second| {
            let slow = if second < WARMUP { 1.6 } else { 1.0 } * (1.0 + 0.1 * (dice.unit() - 0.5));
            let p50 = plan.typical_us * drift * slow;
            Slice {
                at_ms: second * 1000,
                ms: 1000,
                ok: (plan.per_s * (1.0 + 0.03 * (dice.unit() - 0.5))) as u64,
                bad: u64::from(plan.limit.is_some() && second % 5 == 4),
                p50_us: Some(p50),
                p99_us: Some(p50 * 2.4),
                max_us: Some(p50 * (3.0 + dice.unit() * 3.0)),
            }
        })
        .collect()
}

fn components(plan: &Plan<'_>, dice: &mut Dice) -> Vec<Component> {
    let last = plan.cpu_us.len() - 1;
    let mut all = Vec::new();
    for (at, (name, cost)) in plan.cpu_us.iter().enumerate() {
        let limit = plan.limit.filter(|_| at == last);
        let (mut user, mut throttled) = (0.0, 0.0);
        let samples = (0..=(SECONDS + WARMUP) * 10).map(|tenth| {
            let wanted = plan.per_s * cost / 1e6 * 100.0 * (0.9 + 0.2 * dice.unit());
            let most = limit.map_or(f64::MAX, |limit| limit * 100.0);
            user += wanted.min(most);
            throttled += if wanted >= most { 0.93 } else { 0.0 };
            Sample {
                at_ms: tenth * 100,
                user_ms: (user * 0.7) as u64,
                system_ms: (user * 0.3) as u64,
                rss_bytes: (20 << 20) + tenth * 9000,
                threads: 4,
                voluntary_switches: tenth * 90,
                involuntary_switches: tenth * 3,
                connections_opened: Some(50),
                periods: limit.map(|_| tenth),
                throttled_periods: limit.map(|_| throttled as u64),
                throttled_ms: limit.map(|_| (throttled * 88.0) as u64),
                ..Sample::default()
            }
        });
        all.push(Component {
            name: (*name).to_owned(),
            cpu_limit_cores: limit,
            memory_limit_bytes: None,
            cpu_error_us: Some(4_000),
            samples: samples.collect(),
            counters: BTreeMap::new(),
            ended: false,
        });
    }
    all
}

fn phases(plan: &Plan<'_>, dice: &mut Dice) -> Vec<Phase> {
    let watched = plan.cpu_us.iter().skip(1);
    let of = watched.flat_map(|(component, cost)| {
        [("authenticate", 0.5), ("decide", 0.1), ("upstream", 3.0)].map(|(name, share)| Phase {
            component: (*component).to_owned(),
            name: name.to_owned(),
            duration: Distribution::of((0..500).map(|_| dice.latency(cost * share)), 3),
        })
    });
    of.collect()
}

fn staleness(dice: &mut Dice) -> Vec<Staleness> {
    let mut of = |cluster: &str, node: &str, typical: f64| Staleness {
        node: node.to_owned(),
        cluster: Some(cluster.to_owned()),
        delay: Distribution::of((0..200).map(|_| dice.latency(typical)), 3),
        never: 0,
    };
    vec![of("east", "a", 3_000.0), of("east", "b", 3_600.0), of("west", "c", 11_000.0)]
}

/// A record of these variants, measured on a machine with this many cores.
pub fn measured(variants: Vec<Variant>, cores: u32) -> Record {
    let mut record = Record::new(Run {
        title: "seeded faults".to_owned(),
        scenario: None,
        origin: Origin::Lab { version: "0".to_owned(), generators: 1 },
        started_unix_s: None,
        commit: None,
        configuration: None,
        seed: None,
        quick: false,
        partial: false,
        machines: vec![Machine {
            role: "servers and generator".to_owned(),
            cores,
            processor: None,
            kernel: String::new(),
            memory_bytes: 0,
            cgroup: None,
        }],
        peers: Vec::new(),
        counting: BTreeMap::new(),
    });
    record.variants = variants;
    record
}

/// A record with a ladder, a throttled arrangement, a sweep and staleness, and published figures
/// for comparison.
pub fn record(seed: u64) -> Record {
    static MADE: Mutex<BTreeMap<u64, Record>> = Mutex::new(BTreeMap::new());
    MADE.lock().unwrap().entry(seed).or_insert_with(|| make(seed)).clone()
}

fn make(seed: u64) -> Record {
    let mut dice = Dice(seed);
    let mut record = Record::new(run());
    let rungs = [
        ("service", "direct", 310.0, 2.0),
        ("gateway", "gateway", 470.0, 34.0),
        ("authentication", "fused/authn", 512.0, 41.0),
        ("authorization", "fused/oidc", 515.0, 42.0),
    ];
    for (_, name, typical_us, cost) in rungs {
        let service = [("echo", 12.0), ("postern", cost)];
        let cpu_us = if name == "direct" { &service[..1] } else { &service[..] };
        let plan = Plan { name, typical_us, per_s: 900.0, cpu_us, limit: None };
        record.variants.push(variant(&plan, 8, &mut dice));
    }
    let limited = Plan {
        name: "3x/50m",
        typical_us: 1_610_000.0,
        per_s: 29.0,
        cpu_us: &[("echo", 12.0), ("gateway", 60.0), ("auth-proxy", 1720.0)],
        limit: Some(0.05),
    };
    record.variants.push(variant(&limited, 6, &mut dice));
    record.variants[3].iterations.iter_mut().for_each(|iteration| iteration.staleness = staleness(&mut dice));
    for (rate, per_s, typical_us) in [
        (500, 500.0, 300.0),
        (1000, 1000.0, 330.0),
        (2000, 1990.0, 520.0),
        (4000, 2050.0, 90_000.0),
        (8000, 2040.0, 410_000.0),
    ] {
        let name = format!("rate/{rate}");
        let plan = Plan { name: &name, typical_us, per_s, cpu_us: &[("echo", 12.0)], limit: None };
        let mut at = variant(&plan, 5, &mut dice);
        at.load.rate_per_s = Some(f64::from(rate));
        record.variants.push(at);
    }
    record.ladders = vec![Ladder {
        name: "fused".to_owned(),
        rungs: rungs
            .map(|(adds, name, ..)| Rung { adds: adds.to_owned(), variant: name.to_owned() })
            .to_vec(),
    }];
    let rates = [500, 1000, 2000, 4000, 8000].map(|rate| format!("rate/{rate}")).to_vec();
    record.sweeps = vec![Sweep { name: "direct, growing rate".to_owned(), variants: rates }];
    record.reference = vec![Reference {
        beside: Some("3x/50m".to_owned()),
        label: "three hops, auth proxy at 0.05 cores".to_owned(),
        provenance: "published, other hardware".to_owned(),
        p50_us: Some(1_620_000.0),
        p95_us: Some(3_140_000.0),
        p99_us: Some(3_970_000.0),
        per_s: Some(29.05),
        cpu_cores: BTreeMap::from([("auth-proxy".to_owned(), 0.0334)]),
    }];
    record
}

fn run() -> Run {
    Run {
        title: "What authentication costs".to_owned(),
        scenario: Some("paths".to_owned()),
        origin: Origin::Lab { version: "0.1.0".to_owned(), generators: 1 },
        started_unix_s: Some(1_760_000_000.0),
        commit: Some("13ef7b1".to_owned()),
        configuration: Some("sha256:5d0c".to_owned()),
        seed: Some(7),
        quick: false,
        partial: false,
        machines: vec![Machine {
            role: "servers and generator".to_owned(),
            cores: 2,
            processor: Some("a processor".to_owned()),
            kernel: "Linux 6.12".to_owned(),
            memory_bytes: 24 << 30,
            cgroup: Some(Cgroup { version: 2, cpu_limit_cores: None, memory_limit_bytes: Some(24 << 30) }),
        }],
        peers: vec![Peer { name: "envoy".to_owned(), version: "1.34".to_owned(), optimization: None }],
        counting: BTreeMap::from([("compiler".to_owned(), "rustc version 1.95.0".to_owned())]),
    }
}
