//! `postern demo`: a gateway, a provider with users, and a service, in one process on loopback.
//!
//! Owns: starting the three (`fixture`, `provider`), printing what runs where, and the self check
//! (`selfcheck`, `visitor`).

mod browser;
mod fixture;
mod ports;
mod provider;
mod selfcheck;

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, Color, Table};
use fixture::Fixture;
use ports::{Ports, Wanted};

use crate::exit::{Failure, Outcome};
use crate::lifecycle::Signals;
use crate::terminal::{BOLD, DIM, SUCCESS, WARNING};

/// Default port of the gateway.
const PORT: u16 = 8080;

/// Arguments of `postern demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything is embedded and bound to 127.0.0.1. Keys, secrets and the provider's database are in a
temporary folder, which is created at each start and removed at the end.

Exit codes: 0 ended by Ctrl-C, or all checks passed, 1 a check found a difference,
3 failure.")]
pub struct Arguments {
    /// Run the self check, print expected and actual results, and end.
    #[arg(long)]
    check: bool,
    /// Print the configuration of the demo, and end.
    #[arg(long, conflicts_with = "check")]
    print_config: bool,
    /// Port of the gateway; the provider, the service and the admin listener take the next three.
    /// 0: free ones. Default: 8080, or free ones where a port is in use.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

/// Runs `postern demo`.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    if arguments.print_config {
        anstream::print!("{}", fixture::CONFIG);
        return Ok(Outcome::Success);
    }
    let mut signals = Signals::install()?;
    // The self check must not fail because another program uses a port.
    let wanted = if arguments.check { Wanted::Free } else { Wanted::from_option(arguments.port, PORT) };
    let ports = Ports::choose(wanted)?;
    let town = Fixture::start(ports, arguments.check)?;
    if arguments.check {
        let outcome = selfcheck::run(&town);
        town.stop();
        return outcome;
    }
    anstream::print!("{}", welcome_text(&town));
    signals.wait_for_stop();
    town.stop();
    Ok(Outcome::Success)
}

/// Text that explains the running demo.
fn welcome_text(town: &Fixture) -> String {
    let mut out = String::new();
    let version = env!("CARGO_PKG_VERSION");
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "\n  {BOLD}Postern {version}{BOLD:#}  {DIM}an access gateway, with everything around it in one process{DIM:#}\n"
    );
    let mut table = Table::new();
    table.load_style(NOTHING).enforce_styling();
    let gateway = town.gateway();
    let rows = [
        ("gateway", gateway.clone(), "authenticates callers and authorizes requests"),
        ("provider", town.provider(), "an OpenID provider: users log in, programs get tokens"),
        ("service", town.service(), "runs behind the gateway and shows the requests it receives"),
        ("admin", town.admin(), "/readyz  /metrics  /debug/config"),
    ];
    for (name, place, description) in rows {
        table.add_row([
            Cell::new(format!("   {name}")).add_attribute(Attribute::Bold),
            Cell::new(place).fg(Color::Cyan),
            Cell::new(description),
        ]);
    }
    let _ = writeln!(out, "{table}\n");
    if let [first, rest @ ..] = town.ports_in_use() {
        let ports = rest.iter().fold(first.to_string(), |ports, port| format!("{ports}, {port}"));
        let _ = writeln!(
            out,
            "  {WARNING}Already in use: {ports}.{WARNING:#} The addresses above use other ports; choose with `--port`.\n"
        );
    }
    let _ = writeln!(out, "  {DIM}# a token for a client that may read orders{DIM:#}");
    let _ = writeln!(out, "  TOKEN=$({})\n", town.token_command());
    let bearer = "-H \"Authorization: Bearer $TOKEN\"";
    let requests = [
        ("200", "allowed: the service sees who is calling", format!("curl -i {bearer} {gateway}/orders")),
        ("401", "refused: no credential", format!("curl -i {gateway}/orders")),
        (
            "403",
            "refused: only managers may delete",
            format!("curl -i -X DELETE {bearer} {gateway}/orders/7"),
        ),
    ];
    for (status, description, command) in requests {
        let _ = writeln!(
            out,
            "  {DIM}#{DIM:#} {SUCCESS}{status}{SUCCESS:#} {DIM}{description}{DIM:#}\n  {command}\n"
        );
    }
    let _ =
        writeln!(out, "  {DIM}# log in at the provider, in a browser:{DIM:#} {}/account", town.provider());
    for (name, password) in town.people() {
        let _ = writeln!(out, "  {DIM}#{DIM:#}   {name}  {DIM}with the password{DIM:#}  {password}");
    }
    let _ = writeln!(out);
    let _ = writeln!(out, "  {DIM}Each request is logged below. Ctrl-C stops everything.{DIM:#}\n");
    out
}
