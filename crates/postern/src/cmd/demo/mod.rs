//! `postern demo`: a gateway with a login, a provider with users, and a service, in one process on
//! loopback.
//!
//! Owns: the files of the demo (`files`), starting them (`fixture`), printing what runs where, and
//! the self check (`selfcheck`, `browser`).

mod browser;
mod files;
mod fixture;
mod ports;
mod selfcheck;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, Color, Table};
use files::DemoFiles;
use fixture::Fixture;
use ports::{Addresses, Ports, Wanted};

use crate::exit::{Failure, Outcome};
use crate::lifecycle::Signals;
use crate::shell;
use crate::terminal::{BOLD, DIM, SUCCESS, WARNING};

/// Default port of the gateway.
const PORT: u16 = 8080;

/// Arguments of `postern demo`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Everything is embedded and bound to 127.0.0.1. Keys, secrets and the databases are in a temporary
folder, which is created at each start and removed at the end. With --write they are in a folder to
keep, where they can be edited and served.

Examples:
  postern demo --check
  postern demo --write first --port 7080

Exit codes: 0 ended by Ctrl-C, written, or all checks passed, 1 a check found a difference,
3 failure.")]
pub struct Arguments {
    /// Run the self check, print expected and actual results, and end.
    #[arg(long)]
    check: bool,
    /// Print the configuration of the demo, and end.
    #[arg(long, conflicts_with = "check")]
    print_config: bool,
    /// Write the configuration, its secrets and the provider's database with two users to a folder,
    /// print how to serve them, and end. Existing files are not replaced.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["check", "print_config"])]
    write: Option<PathBuf>,
    /// Port of the gateway; the provider, the service and the admin listener take the next three.
    /// 0: free ones. Default: 8080, or free ones where a port is in use.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

/// Runs `postern demo`.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    if arguments.print_config {
        anstream::print!("{}", files::CONFIG);
        return Ok(Outcome::Success);
    }
    if let Some(folder) = &arguments.write {
        return write(folder, arguments.port.unwrap_or(PORT));
    }
    let mut signals = Signals::install()?;
    // The self check must not fail because another program uses a port.
    let wanted = if arguments.check { Wanted::Free } else { Wanted::from_option(arguments.port, PORT) };
    let ports = Ports::choose(wanted)?;
    let fixture = Fixture::start(ports, arguments.check)?;
    if arguments.check {
        let outcome = selfcheck::run(&fixture);
        fixture.stop();
        return outcome;
    }
    anstream::print!("{}", welcome_text(&fixture));
    signals.wait_for_stop();
    fixture.stop();
    Ok(Outcome::Success)
}

/// Leaves the demo as files, and prints how to run them.
fn write(folder: &Path, port: u16) -> Result<Outcome, Failure> {
    if port == 0 {
        return Err(Failure::usage(
            "files cannot name a port that is chosen later: give `--port` another one",
        ));
    }
    let addresses = Addresses::from_port(port)?;
    let (files, _) = DemoFiles::write(folder, addresses)?;
    let (program, config) = (shell::program(), shell::quote(&files.config.display().to_string()));
    anstream::println!(
        "{BOLD}written{BOLD:#}: {}, its secrets, the provider's database\n",
        files.config.display()
    );
    anstream::println!("next, each in a terminal:");
    anstream::println!("  {program} echo --reflect --page --listen {}", addresses.service);
    anstream::println!("  {program} serve {config}\n");
    anstream::println!("then open http://{}/ in a browser, and log in:", addresses.gateway);
    for (name, password) in &files.users {
        anstream::println!("  {name}  with the password  {}", password.expose());
    }
    anstream::println!("\na new password, if these are lost:");
    anstream::println!("  {program} admin {config} user password ada --generate-password");
    Ok(Outcome::Success)
}

/// Text that explains the running demo.
fn welcome_text(fixture: &Fixture) -> String {
    let mut out = String::new();
    let version = env!("CARGO_PKG_VERSION");
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "\n  {BOLD}Postern {version}{BOLD:#}  {DIM}an access gateway, with everything around it in one process{DIM:#}\n"
    );
    let mut table = Table::new();
    table.load_style(NOTHING).enforce_styling();
    let gateway = fixture.gateway();
    let rows = [
        ("gateway", gateway.clone(), "authenticates callers and authorizes requests"),
        ("provider", fixture.provider(), "an OpenID provider: people log in, programs get tokens"),
        ("service", fixture.service(), "runs behind the gateway and shows the requests it receives"),
        ("admin", fixture.admin(), "/readyz  /metrics  /debug/config"),
    ];
    for (name, place, description) in rows {
        table.add_row([
            Cell::new(format!("   {name}")).add_attribute(Attribute::Bold),
            Cell::new(place).fg(Color::Cyan),
            Cell::new(description),
        ]);
    }
    let _ = writeln!(out, "{table}\n");
    if let [first, rest @ ..] = fixture.ports_in_use() {
        let ports = rest.iter().fold(first.to_string(), |ports, port| format!("{ports}, {port}"));
        let _ = writeln!(
            out,
            "  {WARNING}Already in use: {ports}.{WARNING:#} The addresses above use other ports; choose with `--port`.\n"
        );
    }
    in_browser(&mut out, fixture);
    in_terminal(&mut out, fixture);
    let _ = writeln!(out, "  {DIM}Each request is logged below. Ctrl-C stops everything.{DIM:#}\n");
    out
}

/// What people can try.
fn in_browser(out: &mut String, fixture: &Fixture) {
    let gateway = fixture.gateway();
    let _ = writeln!(out, "  {DIM}# in a browser, open{DIM:#} {gateway}/orders {DIM}and log in{DIM:#}");
    for (name, password) in &fixture.files().users {
        let _ =
            writeln!(out, "  {DIM}#{DIM:#}   {name}  {DIM}with the password{DIM:#}  {}", password.expose());
    }
    let _ = writeln!(out, "  {DIM}# ada may also open{DIM:#} {gateway}/reports{DIM}, ben gets 403{DIM:#}\n");
    let _ = writeln!(
        out,
        "  {DIM}# while Ben's page counts its requests, disable his account: they are refused within two seconds{DIM:#}\n  {}\n",
        fixture.disable_command()
    );
}

/// What programs can try.
fn in_terminal(out: &mut String, fixture: &Fixture) {
    let gateway = fixture.gateway();
    let _ = writeln!(out, "  {DIM}# a token for a program that may read orders{DIM:#}");
    let _ = writeln!(out, "  TOKEN=$({})\n", fixture.token_command());
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
}
