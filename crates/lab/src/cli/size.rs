//! Command `lab size`: computes the cores that a load needs from measured reports.
//!
//! Owns: its arguments. Does not own: the plan ([`lab_analysis::offline::size`]).

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use lab_analysis::offline::size::{MeasuredReport, SizeTerms, size};
use lab_analysis::record::Record;

use super::{CliError, CommandOutcome};
use crate::files::{FileError, read_record, write_sheet};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Cores are rate × CPU per request ÷ the share of the cores that may be used, with the range that the
rounds give. The reports must be of one path on one kind of machine. Where they have the path at
several rates, the plan says whether the cost depends on the rate.

Examples:
  postern lab size run/report.json --path fused/oidc --rate 5000
  postern lab size run/report.json --path fused/oidc/open --rate 5000 --headroom 50 --price 0.04
  postern lab size a/report.json b/report.json --path fused/oidc --rate 5000 --out plan

Exit codes: 0 success, 3 the reports do not carry a plan; the message says why.")]
pub(super) struct Size {
    /// report.json of one or more runs of one path
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// Requests per second to plan for; of a flow, transactions per second
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    rate: f64,
    /// Variant, or its part before the load for all loads of it; needed if there are several
    #[arg(long, value_name = "VARIANT")]
    path: Option<String>,
    /// Share of the cores that stays free, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 40.0, value_parser = headroom)]
    headroom: f64,
    /// Price of a core for an hour, in any currency
    #[arg(long, value_name = "PRICE", value_parser = price)]
    price: Option<f64>,
    /// Folder for size.md and size.html; without it, Markdown is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Highest rate that is planned for, per second.
const MAX_RATE: f64 = 1e9;
/// Largest share that may stay free, percent.
const MAX_HEADROOM: f64 = 95.0;

fn number(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() { Ok(value) } else { Err("not a finite number".to_owned()) }
}

fn rate(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if value > 0.0 && value <= MAX_RATE {
        Ok(value)
    } else {
        Err(format!("must be above 0 and at most {MAX_RATE}"))
    }
}

fn headroom(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if (0.0..=MAX_HEADROOM).contains(&value) {
        Ok(value)
    } else {
        Err(format!("must be from 0 to {MAX_HEADROOM}"))
    }
}

fn price(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if value > 0.0 { Ok(value) } else { Err("must be above 0".to_owned()) }
}

pub(super) fn run(arguments: &Size, out: &mut dyn Write) -> Result<CommandOutcome, CliError> {
    let read = arguments.records.iter().map(|path| Ok((path.display().to_string(), read_record(path)?)));
    let records: Vec<(String, Record)> = read.collect::<Result<_, FileError>>()?;
    let reports: Vec<MeasuredReport<'_>> =
        records.iter().map(|(file, record)| MeasuredReport { file, record }).collect();
    let terms = SizeTerms {
        rate_per_s: arguments.rate,
        path: arguments.path.as_deref(),
        headroom: arguments.headroom / 100.0,
        price: arguments.price,
    };
    let sheet = size(&reports, &terms)?.sheet(&reports);
    match &arguments.out {
        None => out.write_all(sheet.markdown().as_bytes())?,
        Some(folder) => {
            for path in write_sheet(&sheet, folder, "size")? {
                writeln!(out, "{}", path.display())?;
            }
        }
    }
    Ok(CommandOutcome::Success)
}
