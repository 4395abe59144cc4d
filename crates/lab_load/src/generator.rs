//! Load generators: other tools that can send a load instead of the lab, so that their results can
//! be compared.
//!
//! Owns: the command line of each tool for a closed loop over HTTP/1.1 on one thread, and the
//! format of its output. Does not own: starting the tool, and parsing its output
//! ([`lab_analysis::offline::import`]).

use std::path::{Path, PathBuf};

use lab_analysis::offline::import::Tool;
use serde::Deserialize;

/// Component name of the program that sends a load, in samples and records.
pub const COMPONENT: &str = "generator";

/// Program that sends a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Generator {
    /// The lab itself, sampled like a component.
    Postern,
    /// Load generator wrk.
    Wrk,
    /// Load generator h2load of nghttp2.
    H2load,
    /// Load generator oha.
    Oha,
    /// Load generator hey.
    Hey,
    /// Load generator k6.
    K6,
}

/// A closed loop that a tool has to send.
#[derive(Debug, Clone, Copy)]
pub struct ClosedLoop<'a> {
    /// Target URL.
    pub url: &'a str,
    /// Bearer token; `None` to send none.
    pub token: Option<&'a str>,
    /// Workers that each wait for the response before the next request.
    pub workers: u32,
    /// Duration of the load in seconds.
    pub seconds: u64,
    /// Timeout of a request in seconds.
    pub timeout: u64,
    /// `true` to log every request, for a tool that prints no percentiles.
    pub every_request: bool,
}

/// Command line of a tool, and where its output is.
#[derive(Debug, PartialEq, Eq)]
pub struct GeneratorCommand {
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Environment variables of the program.
    pub environment: Vec<(&'static str, &'static str)>,
    /// Path and content of a file that must exist before the start.
    pub script: Option<(PathBuf, String)>,
    /// File with the results; `None` for standard output.
    pub output_file: Option<PathBuf>,
    /// Format of the results.
    pub output_format: Tool,
    /// Format of standard output, if it has requests that are missing in the file.
    pub stdout_format: Option<Tool>,
}

impl Generator {
    /// Name of the program in the search path; `None` for the lab itself.
    pub fn program(self) -> Option<&'static str> {
        Some(match self {
            Self::Postern => return None,
            Self::Wrk => "wrk",
            Self::H2load => "h2load",
            Self::Oha => "oha",
            Self::Hey => "hey",
            Self::K6 => "k6",
        })
    }

    /// Name of the generator in reports.
    pub fn name(self) -> &'static str {
        self.program().unwrap_or("postern")
    }

    /// Command line for a closed loop. The files of the tool are in `folder`. `None` for the lab
    /// itself.
    pub fn command(self, closed_loop: &ClosedLoop<'_>, folder: &Path) -> Option<GeneratorCommand> {
        let ClosedLoop { url, workers, seconds, timeout, every_request, .. } = *closed_loop;
        let header = closed_loop.token.map(|token| format!("Authorization: Bearer {token}"));
        let with_header = |words: &[String]| {
            let header = header.iter().flat_map(|header| ["-H".to_owned(), header.clone()]);
            words.iter().cloned().chain(header).chain([url.to_owned()]).collect::<Vec<String>>()
        };
        let words = |text: String| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        let usual = |arguments, form| GeneratorCommand {
            arguments,
            environment: Vec::new(),
            script: None,
            output_file: None,
            output_format: form,
            stdout_format: None,
        };
        Some(match self {
            Self::Postern => return None,
            Self::Wrk => usual(
                with_header(&words(format!("-t1 -c{workers} -d{seconds}s --latency --timeout {timeout}s"))),
                Tool::Wrk,
            ),
            // The request file of hey has no row for a request without a response, and its times
            // are as coarse as the printed ones.
            Self::Hey => usual(
                with_header(&words(format!(
                    "-disable-redirects -cpus 1 -c {workers} -z {seconds}s -t {timeout}"
                ))),
                Tool::Hey,
            ),
            Self::H2load => {
                let mut arguments = words(format!("--h1 -t1 -c{workers} -D {seconds} -N {timeout}s"));
                let log = folder.join("h2load.log");
                if every_request {
                    arguments.push(format!("--log-file={}", log.display()));
                }
                let form = if every_request { Tool::H2loadLog } else { Tool::H2load };
                GeneratorCommand {
                    output_file: every_request.then_some(log),
                    // The log lacks requests that were lost with their connection or timed out.
                    stdout_format: every_request.then_some(Tool::H2load),
                    ..usual(with_header(&arguments), form)
                }
            }
            Self::Oha => GeneratorCommand {
                environment: vec![("TOKIO_WORKER_THREADS", "1")],
                ..usual(
                    with_header(&words(format!(
                        "--no-tui --output-format json -r 0 -c {workers} -z {seconds}s -t {timeout}s"
                    ))),
                    Tool::Oha,
                )
            },
            Self::K6 => {
                let (script, summary) = (folder.join("k6.js"), folder.join("k6.json"));
                let mut arguments = words("run --quiet --no-usage-report --summary-trend-stats".to_owned());
                arguments.push("avg,min,med,max,p(90),p(95),p(99)".to_owned());
                arguments.push("--summary-export".to_owned());
                arguments.extend([&summary, &script].map(|path| path.display().to_string()));
                GeneratorCommand {
                    environment: vec![("GOMAXPROCS", "1")],
                    script: Some((script, k6_script(closed_loop))),
                    output_file: Some(summary),
                    ..usual(arguments, Tool::K6Summary)
                }
            }
        })
    }
}

/// k6 script in which each virtual user sends one request after the other.
fn k6_script(closed_loop: &ClosedLoop<'_>) -> String {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let header = closed_loop.token.map_or_else(
        || "{}".to_owned(),
        |token| format!("{{Authorization: {}}}", text(&format!("Bearer {token}"))),
    );
    format!(
        "import http from 'k6/http';\n\
         export const options = {{vus: {}, duration: '{}s', discardResponseBodies: true, maxRedirects: 0}};\n\
         export default function () {{ http.get({}, {{headers: {header}, timeout: '{}s'}}); }}\n",
        closed_loop.workers,
        closed_loop.seconds,
        text(closed_loop.url),
        closed_loop.timeout,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: ClosedLoop<'_> = ClosedLoop {
        url: "http://127.0.0.1:8080/app",
        token: Some("ey.J"),
        workers: 50,
        seconds: 5,
        timeout: 10,
        every_request: false,
    };

    #[test]
    fn each_is_asked_for_the_same() {
        let folder = Path::new("/run/lab");
        for (generator, expected, form) in [
            (
                Generator::Wrk,
                "-t1 -c50 -d5s --latency --timeout 10s -H|Authorization: Bearer ey.J|http://127.0.0.1:8080/app",
                Tool::Wrk,
            ),
            (
                Generator::Hey,
                "-disable-redirects -cpus 1 -c 50 -z 5s -t 10 -H|Authorization: Bearer ey.J|http://127.0.0.1:8080/app",
                Tool::Hey,
            ),
            (
                Generator::H2load,
                "--h1 -t1 -c50 -D 5 -N 10s -H|Authorization: Bearer ey.J|http://127.0.0.1:8080/app",
                Tool::H2load,
            ),
            (
                Generator::Oha,
                "--no-tui --output-format json -r 0 -c 50 -z 5s -t 10s -H|Authorization: Bearer ey.J|http://127.0.0.1:8080/app",
                Tool::Oha,
            ),
            (
                Generator::K6,
                "run --quiet --no-usage-report --summary-trend-stats avg,min,med,max,p(90),p(95),p(99) --summary-export /run/lab/k6.json /run/lab/k6.js",
                Tool::K6Summary,
            ),
        ] {
            let command = generator.command(&LOOP, folder).unwrap();
            assert_eq!(command.arguments.join(" "), expected.replace('|', " "), "{generator:?}");
            assert_eq!(command.output_format, form);
        }
        assert_eq!(Generator::Postern.command(&LOOP, folder), None);
    }

    #[test]
    fn h2load_writes_every_request_down() {
        let folder = Path::new("/run/lab");
        let command = Generator::H2load.command(&ClosedLoop { token: None, ..LOOP }, folder).unwrap();
        assert_eq!(command.output_file, None, "writing costs");
        let every = ClosedLoop { every_request: true, token: None, ..LOOP };
        let h2load = Generator::H2load.command(&every, folder).unwrap();
        assert_eq!(h2load.output_file.as_deref(), Some(Path::new("/run/lab/h2load.log")));
        assert!(h2load.arguments.join(" ").contains("--log-file=/run/lab/h2load.log http"));
        assert_eq!((h2load.output_format, h2load.stdout_format), (Tool::H2loadLog, Some(Tool::H2load)));
    }

    #[test]
    fn what_comes_from_outside_is_text_in_a_script() {
        let closed_loop = ClosedLoop { url: "http://h/'\"\\</script>", token: Some("a'\"b"), ..LOOP };
        let script = k6_script(&closed_loop);
        assert!(script.contains(r#"http.get("http://h/'\"\\</script>""#), "{script}");
        assert!(script.contains(r#"{Authorization: "Bearer a'\"b"}"#), "{script}");
    }
}
