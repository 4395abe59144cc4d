//! `postern serve`: the lifecycle of the process.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Folder, Running, address_in, get, sources};
use dataplane::ports::free;

/// A gateway on free ports, and its configuration.
struct Served {
    process: Running,
    folder: Folder,
    text: String,
    gateway: String,
    admin: String,
}

impl Served {
    fn start(name: &str, more: &str) -> Self {
        Self::start_by(name, more, Running::start)
    }

    fn start_by(name: &str, more: &str, start: impl FnOnce(&[&str]) -> Running) -> Self {
        let admin = free();
        let folder = Folder::new(name);
        let text = std::fs::read_to_string(sources().join("sound/minimal.toml")).unwrap();
        let text = text.replace("127.0.0.1:8080", "127.0.0.1:0")
            + &format!("\n[admin]\naddress = \"{admin}\"\n[access_log]\nformat = \"off\"\n{more}");
        let file = folder.write("postern.toml", &text);
        let mut process = start(&["serve", "--config", file.to_str().unwrap()]);
        let line = process.wait_for("listening");
        Self { gateway: address_in(&line, "address="), process, folder, text, admin }
    }

    fn write(&self, text: &str) {
        // Replace the file with a new one, as an editor does.
        let new = self.folder.write("new.toml", text);
        std::fs::rename(new, self.folder.0.join("postern.toml")).unwrap();
    }

    fn count(&self, name: &str) -> u64 {
        let metrics = get(&self.admin, "/metrics");
        let line = metrics.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in\n{metrics}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn status(&self, path: &str) -> String {
        get(&self.gateway, path).split(' ').nth(1).unwrap_or_default().to_owned()
    }

    /// Sends requests until the status is as expected.
    fn wait_for_status(&self, path: &str, status: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.status(path) != status {
            assert!(Instant::now() < until, "{path} does not become {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn on_reload_the_last_good_set_is_kept_and_a_metric_raised() {
    let mut served = Served::start("reload", "[server]\nreload_on_change = false\n");
    // No service runs behind the gateway: 502 means that the route is served.
    assert_eq!(served.status("/"), "502");
    let good = served.text.clone();
    served.write(&good.replace("public = true", "public = true\npath = { exact = \"/moved\" }"));
    served.process.signal("-HUP");
    served.process.wait_for("configuration applied");
    served.wait_for_status("/", "404");
    assert_eq!(served.status("/moved"), "502");

    served.write(&good.replace("public = true", "publik = true"));
    served.process.signal("-HUP");
    served.process.wait_for("configuration refused");
    served.process.wait_for("did you mean `public`?");
    assert_eq!(served.status("/moved"), "502", "the last good one is in force");
    assert_eq!(served.count("postern_config_reloads_total{result=\"failure\"}"), 1);
    assert_eq!(served.count("postern_config_reloads_total{result=\"success\"}"), 1);

    served.write(&good);
    served.process.signal("-HUP");
    served.process.wait_for("configuration applied");
    served.wait_for_status("/", "502");
}

#[test]
fn a_changed_file_is_read_without_being_asked() {
    let mut served = Served::start("change", "");
    served.write(&served.text.replace("public = true", "public = true\npath = { exact = \"/moved\" }"));
    served.process.wait_for("configuration applied");
    served.wait_for_status("/moved", "502");
}

const SECOND: &str = "\n[[listener]]\nname = \"second\"\naddress = \"@\"\n";

#[test]
fn a_reload_that_meets_a_passing_fault_is_tried_again() {
    for by_change in [true, false] {
        let name = format!("passing-{by_change}");
        let mut served = Served::start(&name, &format!("[server]\nreload_on_change = {by_change}\n"));
        let address = free();
        let taken = std::net::TcpListener::bind(&address).unwrap();
        served.write(&(served.text.clone() + &SECOND.replace('@', &address)));
        if !by_change {
            served.process.signal("-HUP");
        }
        let line = served.process.wait_for("configuration not applied");
        assert!(line.contains(&address), "{line}");
        drop(taken);
        served.process.wait_for("configuration applied");
        assert!(get(&address, "/").contains(" 502 "));
        assert_eq!(served.count("postern_config_last_reload_successful"), 1);
    }
}

#[test]
fn what_changed_since_it_could_not_be_applied_waits_to_be_asked_for() {
    let mut served = Served::start("since", "[server]\nreload_on_change = false\n");
    let address = free();
    let taken = std::net::TcpListener::bind(&address).unwrap();
    let text = served.text.clone() + &SECOND.replace('@', &address);
    served.write(&text);
    served.process.signal("-HUP");
    served.process.wait_for("configuration not applied");
    served.write(&text.replace("public = true", "public = true\npath = { exact = \"/moved\" }"));
    served.process.wait_for("not retried; send SIGHUP");
    drop(taken);
    assert_eq!(served.status("/"), "502", "the last good one stays in force");
    served.process.signal("-HUP");
    served.process.wait_for("configuration applied");
    served.wait_for_status("/", "404");
}

#[test]
fn what_needs_a_restart_is_said() {
    let mut served = Served::start("restart", "[server]\nworkers = 1\n");
    served.write(&served.text.replace("workers = 1", "workers = 2"));
    served.process.signal("-HUP");
    let line = served.process.wait_for("takes effect at the next start");
    assert!(line.contains("server.workers"), "{line}");
    let config = get(&served.admin, "/debug/config");
    assert!(config.contains("\nworkers = 1\n"), "what is shown is in force: {config}");
    assert!(config.contains("# changed in the file, applied after a restart: server.workers\n"), "{config}");
}

#[test]
fn the_process_ends_as_told() {
    for signal in ["-TERM", "-INT"] {
        let mut served = Served::start("end", "");
        served.process.signal(signal);
        served.process.wait_for("drained");
        assert_eq!(served.process.ended(), Some(0), "{signal}");
    }
}

#[test]
fn operators_see_health_and_the_effective_configuration() {
    let served = Served::start("admin", "");
    assert!(get(&served.admin, "/livez").contains(" 200 "));
    assert!(get(&served.admin, "/readyz").contains(" 200 "));
    let config = get(&served.admin, "/debug/config");
    assert!(config.contains("[[route]]") && config.contains("drain_timeout = \"30s\""), "{config}");
}

#[test]
fn the_access_log_goes_where_it_is_told() {
    let log = "[access_log]\nformat = \"json\"\noutput = \"access.log\"\n";
    // A change at run time waits for the next start.
    let mut served = Served::start("log", "");
    served.write(&served.text.replace("[access_log]\nformat = \"off\"\n", log));
    let line = served.process.wait_for("takes effect at the next start");
    assert!(line.contains("access_log.format"), "{line}");
    served.process.wait_for("access_log.output");
    served.process.signal("-TERM");
    assert_eq!(served.process.ended(), Some(0));
    let file = served.folder.0.join("postern.toml");
    let mut process = Running::start(&["serve", "--config", file.to_str().unwrap()]);
    let gateway = address_in(&process.wait_for("listening"), "address=");
    get(&gateway, "/seen?secret=hunter2");
    process.signal("-TERM");
    assert_eq!(process.ended(), Some(0));
    let written = std::fs::read_to_string(Path::new(&served.folder.0).join("access.log")).unwrap();
    let line: serde_json::Value = serde_json::from_str(written.lines().next().unwrap()).unwrap();
    assert_eq!(line["path"], "/seen");
    assert!(!written.contains("hunter2"), "{written}");
}

/// security.md, HTTP: the accept loop survives EMFILE.
#[test]
fn http_a_process_out_of_descriptors_goes_on_when_there_are_some() {
    const MOST: usize = 60;
    let start = |arguments: &[&str]| Running::start_with_descriptors(MOST, arguments);
    let served = Served::start_by("descriptors", "[server]\nworkers = 1\n", start);
    assert_eq!(served.status("/"), "502");
    let open = || std::fs::read_dir(served.process.proc("fd")).expect("it lives").count();
    let ticks = || {
        let stat = std::fs::read_to_string(served.process.proc("stat")).expect("it lives");
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        // `utime` and `stime` (proc(5)), in hundredths of a second.
        fields.split(' ').skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum::<u64>()
    };
    // Open more connections than it can accept. The rest waits in the kernel's queue.
    let began = Instant::now();
    let idle: Vec<_> = (0..MOST).map(|_| std::net::TcpStream::connect(&served.gateway).unwrap()).collect();
    while open() < MOST {
        assert!(began.elapsed() < Duration::from_secs(20), "{} descriptors are open", open());
        std::thread::sleep(Duration::from_millis(5));
    }
    let (before, exhausted) = (ticks(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let spent = Duration::from_millis(10 * (ticks() - before));
    assert!(spent < exhausted.elapsed() / 4, "{spent:?} of CPU time to wait for a descriptor");
    drop(idle);
    served.wait_for_status("/", "502");
    let failed = served.count("postern_accept_errors_total");
    let most = began.elapsed().as_millis() / 50 + 2;
    assert!(failed > 0 && u128::from(failed) <= most, "{failed} failures, one each 50 ms are {most}");
}

/// security.md, HTTP: a client with many idle connections cannot keep others out.
#[test]
fn http_connections_that_rest_make_room_for_others() {
    // With so few descriptors it uses its minimum of 64 connections.
    let start = |arguments: &[&str]| Running::start_with_descriptors(264, arguments);
    let served = Served::start_by("crowded", "[server]\nworkers = 1\n", start);
    assert_eq!(served.status("/"), "502");
    let idle: Vec<_> = (0..150).map(|_| std::net::TcpStream::connect(&served.gateway).unwrap()).collect();
    // The last connections found no room, and the earlier ones have not been idle long enough to be
    // closed.
    let refused = r#"postern_connections_refused_total{listener="web",reason="limit"}"#;
    let began = Instant::now();
    while served.count(refused) == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "nobody is refused");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(1300));
    for _ in 0..20 {
        assert_eq!(served.status("/"), "502", "somebody made room");
    }
    assert!(served.count(r#"postern_connections_evicted_total{listener="web"}"#) > 0);
    drop(idle);
}
