//! Facts: report sections about what ran, on which machines, and how to read the report.

use crate::formatting;
use crate::offline::render::{Block, Section, Table, Warning};
use crate::record::{Arrivals, LoadShape, Machine, Origin, Record, Stage};

/// Line under the title of the report.
pub(super) fn lead(record: &Record) -> String {
    let run = &record.run;
    let mut parts = Vec::new();
    match &run.origin {
        Origin::Lab { version, generators } => {
            let many = if *generators > 1 { format!(", {generators} generators") } else { String::new() };
            parts.push(format!("measured by the lab {version}{many}"));
        }
        Origin::Import { tool, file, .. } => parts.push(format!("measured by {tool}, imported from {file}")),
    }
    let iterations: usize = record.variants.iter().map(|variant| variant.iterations.len()).sum();
    parts.push(format!("{} variants, {iterations} iterations", record.variants.len()));
    parts.extend(run.commit.as_ref().map(|commit| format!("commit {commit}")));
    parts.join(" · ")
}

/// Section with the warnings that the verdict does not show.
pub(super) fn more_findings(rest: Vec<Warning>) -> Section {
    let mut section = Section::new("More findings");
    section.blocks.extend(rest.into_iter().map(Block::Warning));
    section
}

/// Section with the facts of the run, its machines and its variants.
pub(super) fn facts(record: &Record) -> Section {
    let run = &record.run;
    let mut section = Section::new("What ran");
    let unknown = || "not known".to_owned();
    let mut table = Table::new("Run", ["fact", "value"]);
    for (name, value) in of_run(record) {
        table.row(vec![name, value]);
    }
    section.table(table);
    let mut table =
        Table::new("Machines", ["role", "cores", "processor", "memory", "kernel", "control group"]);
    for machine in &run.machines {
        table.row(vec![
            machine.role.clone(),
            machine.cores.to_string(),
            machine.processor.clone().unwrap_or_else(unknown),
            formatting::bytes(machine.memory_bytes as f64),
            machine.kernel.clone(),
            group(machine),
        ]);
    }
    section.table(table);
    let mut table = Table::new("Variants", ["variant", "topology", "load", "labels"]);
    for variant in &record.variants {
        let labels: Vec<String> =
            variant.labels.iter().map(|(key, value)| format!("{key} {value}")).collect();
        table.row(vec![
            variant.name.clone(),
            variant.topology.clone(),
            load(&variant.load),
            labels.join(", "),
        ]);
    }
    section.table(table);
    section
}

fn group(machine: &Machine) -> String {
    let Some(group) = &machine.cgroup else { return "none".to_owned() };
    let cpu = group.cpu_limit_cores.map_or("no CPU limit".to_owned(), |limit| format!("{limit} cores"));
    let memory = group
        .memory_limit_bytes
        .map_or("no memory limit".to_owned(), |limit| formatting::bytes(limit as f64));
    format!("v{}, {cpu}, {memory}", group.version)
}

/// Facts of a run by name, in a form that can be compared with another run.
pub(in crate::offline) fn of_run(record: &Record) -> Vec<(String, String)> {
    let run = &record.run;
    let mut facts: Vec<(String, String)> = [
        ("scenario", run.scenario.clone()),
        ("commit", run.commit.clone()),
        ("configuration digest", run.configuration.clone()),
        ("seed", run.seed.map(|seed| seed.to_string())),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.unwrap_or_else(|| "not known".to_owned())))
    .collect();
    facts.extend(run.peers.iter().map(|peer| {
        let level = peer.optimization.as_ref().map(|level| format!(", optimization level {level}"));
        (peer.name.clone(), format!("{}{}", peer.version, level.unwrap_or_default()))
    }));
    facts
}

/// Describes a machine in one line.
pub(in crate::offline) fn machine(machine: &Machine) -> String {
    let processor = machine.processor.as_deref().unwrap_or("not known");
    let memory = formatting::bytes(machine.memory_bytes as f64);
    format!(
        "{} × {processor}, {memory}, {}, control group: {}",
        machine.cores,
        machine.kernel,
        group(machine)
    )
}

/// Describes a load in one line.
pub(in crate::offline) fn load(load: &LoadShape) -> String {
    let mut parts = vec![match load.arrivals {
        Arrivals::Closed => {
            format!("closed loop, {} workers", load.concurrency.map_or("?".to_owned(), |n| n.to_string()))
        }
        Arrivals::Open if !load.stages.is_empty() => {
            format!("open, {}", load.stages.iter().map(stage).collect::<Vec<_>>().join(", then "))
        }
        Arrivals::Open => format!("open, {}/s", load.rate_per_s.map_or("?".to_owned(), formatting::digits)),
        Arrivals::Unknown => "arrivals not known".to_owned(),
    }];
    let most = load.concurrency.filter(|_| load.arrivals != Arrivals::Closed);
    parts.extend(most.map(|most| format!("{most} in flight at most")));
    parts.push(load.flow.clone());
    parts.extend(load.protocol.clone());
    parts.extend(load.tokens.map(|tokens| format!("{} tokens", formatting::count(tokens))));
    parts.extend(load.timeout_s.map(|timeout| format!("timeout {timeout} s")));
    parts.join(", ")
}

/// Describes a stage of a load.
pub(super) fn stage(stage: &Stage) -> String {
    let (from, to) = (formatting::digits(stage.from_per_s), formatting::digits(stage.to_per_s));
    let rate = if from == to { format!("{from}/s") } else { format!("{from} to {to}/s") };
    format!("{rate} for {}", formatting::time(stage.seconds * 1e6))
}

/// Section that explains how to read the report.
pub(super) fn reading_guide() -> Section {
    let mut section = Section::new("How to read this");
    section.text(
        "A figure of a variant is the median over its iterations. The interval beside it contains the true median with 95 % or more (of five \
         iterations 94 %); its ends are two of the iterations. Latencies are of successful responses, and with open arrivals they count from the moment at which a request should have started. Percentiles of one \
         iteration come from its histogram; percentiles are never averaged.",
    );
    section.text(
        "The verdict calls a difference certain if it would be found by chance in less than 5 % of runs, also when the highest and the lowest of many \
         variants are picked. Not certain is no statement that there is no difference.",
    );
    section.text(
        "`postern lab compare` judges the difference between two variants or runs: equivalent within a margin, different, or inconclusive.",
    );
    section.text(
        "Rows with † were published elsewhere, with other hardware and other software. They show a shape; a ratio between them and measured rows means nothing.",
    );
    section
}
